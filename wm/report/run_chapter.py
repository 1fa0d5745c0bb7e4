"""The chapter of a run in a report: what it has shown, its models, and what they cost."""

from collections.abc import Iterator, Mapping
from typing import Any

from wm.artifacts import durable
from wm.model_json import read_env
from wm.report import sections
from wm.report.agent_film import FILM
from wm.report.conclusions import HELD_OUT, event_conclusion, event_rates, prediction_conclusion, score_conclusion
from wm.report.document import Block, Chart, Commands, Heading, Paragraph, Table
from wm.report.plots import Curve, Plot, to_svg
from wm.report.returns_plot import search_plots, time_unit
from wm.report.rounds import rounds_section
from wm.report.run_summary import PLAY, TRAININGS, RunSummary, format_score
from wm.telemetry.trend import after_trim
from wm.units import format_duration, format_size


def chapter(summary: RunSummary) -> Iterator[Block]:
    """What a report says of a run: what it has shown, its films, each of its models, and what they cost."""
    finished, metrics, title = summary.artifacts.get, summary.metrics.get, summary.title
    yield Heading(2, title)
    if summary.damaged:
        yield Paragraph(" ".join(summary.damaged), "Damaged, and left out")
    yield from _outdated(summary)
    yield from _conclusions(summary)
    yield from _scores(summary)
    yield from sections.film_section(title, summary.films, summary.film_note)
    yield from sections.play_section(title, summary.run / PLAY)
    yield from rounds_section(title, summary.rounds)
    yield from _search(summary)
    yield from sections.vae_section(title, finished("vae"), metrics("vae", []))
    yield from sections.mdnrnn_section(title, finished("mdnrnn"), metrics("mdnrnn", []))
    yield from sections.dream_section(title, finished("dream"), summary.fidelity)
    dream = finished("dream-dreamer")
    yield from sections.dreamer_section(title, finished("dreamer"), dream, metrics("dreamer", []))
    yield from _cost(summary)


def _outdated(summary: RunSummary) -> Iterator[Block]:
    """Which artifacts were made from others than stand beside them now: a training replaces its own alone."""
    if older := summary.older:
        yield Paragraph(f"{', '.join(older)} than the run has now. The same commands make them again.", "Older")


def _conclusions(summary: RunSummary) -> Iterator[Block]:
    """What the run has shown, first."""
    artifacts, rows = summary.artifacts, list[list[str]]()
    if summary.evaluation:
        conclusion = score_conclusion(summary.score or {}, _target(summary))
        preview = ", of too few episodes to be quoted" if summary.evaluation.metrics["preview"] else ""
        random = format_score(summary.evaluation.metrics["random"])
        score = format_score(summary.evaluation.metrics)
        rows.append(["score", f"{score}{preview}; the random policy {random}: {conclusion}."])
    mdnrnn, dream = artifacts.get("mdnrnn"), artifacts.get("dream")
    if mdnrnn and (text := prediction_conclusion(mdnrnn.metrics["open_loop"], HELD_OUT)):
        rows.append(["M", text])
    source = dream or mdnrnn
    if source and (text := event_conclusion(source.metrics)):
        warned = source.metrics["events"]["warning"]  # which has the rates that differ
        rows.append(["dream's events", text if warned else f"{text} {event_rates(source.metrics)}"])
    if rows:
        yield Table(["verdict", ""], rows, words=True)


def _target(summary: RunSummary) -> float | None:
    """The return that C was trained for, else gymnasium's own threshold; None if there is none."""
    controller, vae = summary.artifacts.get("controller"), summary.artifacts.get("vae")
    target = controller.settings.get("target_return") if controller else None
    return read_env(vae).reward_threshold if target is None and vae else target


def _scores(summary: RunSummary) -> Iterator[Block]:
    for name, artifact in summary.artifacts.items():
        if not name.startswith("evaluation/") or "random" not in artifact.metrics:
            continue
        score = artifact.metrics
        text = f"{format_score(score)} over {score['episodes']} test episodes"
        text += f"; the random policy {format_score(score['random'])}"
        text += f". Protocol: {score['protocol']}. Mean and half-width of its 95 % interval; one training seed."
        if score["preview"]:
            text += " Too few episodes to be quoted."
        if artifact is not summary.evaluation:
            text = f"{score_conclusion(score)}. {text}"
        yield Paragraph(text, "Return" if name == "evaluation/controller" else f"Return of {artifact.folder.name}")
    unfinished = sorted(path.stem for path in summary.run.glob("*.partial"))
    if unfinished:
        yield Paragraph(f"Unfinished: {', '.join(unfinished)}.")


def _search(summary: RunSummary) -> Iterator[Block]:
    lines = summary.generations
    if not lines:
        return
    yield Heading(3, f"{summary.title}: C, the controller")
    if artifact := summary.artifacts.get("controller"):
        metrics, unit = artifact.metrics, time_unit(lines)
        count = f"{metrics['generations']} {unit}{'' if metrics['generations'] == 1 else 's'}"
        how, whose = ("evolved", "the mean") if unit == "generation" else ("trained by policy gradient", "the policy")
        best = f"{whose} of {unit} {metrics['best_generation']}"
        best = "still the policy of an earlier run" if metrics.get("earlier_is_best") else best
        yield Paragraph(
            f"{metrics['parameters']:,} parameters ({metrics['head']}), {how} for {count} and "
            f"{metrics['env_steps']:,} environment steps. C is {best}, whose return over "
            f"{metrics['validation_episodes']} validation episodes is {metrics['validation_return']:.1f}"
            f"{_acts(metrics)}."
        )
    truncated = "Training episodes may be truncated: these are other returns than those of validation."
    captions = {
        "validation": "On fixed, whole validation episodes, with the 95 % interval.",
        "candidates": truncated,
        "policy": truncated,
    }
    level = ("random policy", summary.score["random"]["mean"]) if summary.score else None
    for plot in search_plots(lines, level):
        yield Chart(to_svg(plot), f"{plot.title[0].upper()}{plot.title[1:]}. {captions[plot.title.split()[0]]}")


def _acts(metrics: Mapping[str, Any]) -> str:
    """How a policy of a policy gradient acts, where that is another way than in the chart of its validations."""
    if not metrics.get("sampled") or "validation_return_likeliest" not in metrics:
        return ""
    likeliest = metrics["validation_return_likeliest"]
    return f", acting by samples; likeliest, as in every validation of the chart, it is {likeliest:.1f}"


def _cost(summary: RunSummary) -> Iterator[Block]:
    if not summary.artifacts:
        return
    yield Heading(3, f"{summary.title}: cost")
    provenances = {name: artifact.manifest["provenance"] for name, artifact in summary.artifacts.items()}
    collecting = [["episodes", format_duration(summary.collecting_seconds), "–", "–"]]
    rows = (collecting if summary.collecting_seconds else []) + [
        [
            name,
            format_duration(summary.encoding_seconds if name == "latents" else artifact.wall_seconds),
            format_size(durable.folder_size(artifact.folder)),
            provenances[name]["finished"],
        ]
        for name, artifact in summary.artifacts.items()
    ]
    yield Table(["artifact", "wall time", "on disk", "finished"], rows)
    for column, caption in (
        ("rss_anon_mb", "Memory of the process (anonymous pages) during each training."),
        ("disk_mb", "Size of each training on disk, with its checkpoints."),
    ):
        yield Chart(to_svg(Plot("share of the training", "MB", _over_time(summary, column))), caption)
    latest = max(provenances.values(), key=lambda provenance: str(provenance["finished"]))
    versions = ", ".join(f"{name} {number}" for name, number in latest["versions"].items() if number)
    environment = f"{latest['machine']}; Python {latest['python']}; {versions}; commit {latest['commit']}."
    yield Paragraph(environment, "Versions")
    yield Commands(list(dict.fromkeys(each["command"] for name, each in provenances.items() if name != FILM)))


def _over_time(summary: RunSummary, column: str) -> list[Curve]:
    curves = []
    for name, label in TRAININGS.items():
        log = after_trim([line for line in summary.metrics.get(name, []) if column in line])
        if log:
            last = log[-1]["step"] or 1
            curves.append(Curve(label, [line["step"] / last for line in log], [line[column] for line in log]))
    return curves
