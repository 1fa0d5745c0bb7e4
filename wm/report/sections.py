"""The sections of a report on V, M, the dream and the Dreamer, each from its artifact and its log of metrics."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from wm.artifacts import json_reader
from wm.artifacts.json_reader import ANYTHING, NUMBER, list_of, or_null, table
from wm.artifacts.runs import Artifact
from wm.model_json import read_env
from wm.report.agent_film import Film
from wm.report.conclusions import (
    HELD_OUT,
    PREDICTORS,
    event_conclusion,
    format_ratio,
    prediction_conclusion,
    prediction_word,
    ranking_conclusion,
    whose,
)
from wm.report.document import Block, Chart, Heading, Link, Paragraph, Picture, Player, Table
from wm.report.fidelity_plot import format_correlation, open_loop, policies
from wm.report.play.inputs import changed_models
from wm.report.play.template import is_filled
from wm.report.plots import Curve, Plot, to_svg
from wm.stats import with_interval

_PROBED = {"r2": "z.2f", "untrained": "z.2f", "error": ".3g", "rows": ","}  # figures of a linear probe
FIDELITY = "fidelity.json"  # what a dream measured, of all policies
_FIDELITY = table(
    {
        "dream": list_of(NUMBER),
        "real": list_of(NUMBER),
        "rho": or_null(NUMBER),
        "rho_ci95": or_null(list_of(NUMBER, 2)),
    },
    others=ANYTHING,
)


def _fidelity(value: Any, key: str) -> None:
    _FIDELITY(value, key)
    json_reader.list_of(NUMBER, len(value["real"]))(value["dream"], "dream")


Log = Sequence[dict[str, Any]]


def _picture(artifact: Artifact, name: str) -> Path | None:
    """A picture that the artifact's manifest lists; None if it lists none. Raises BadData if its checksum differs."""
    return artifact.check(name) if name in artifact.manifest["files"] else None


def film_section(run: str, films: Sequence[Film], note: str) -> Iterator[Block]:
    """Players of the agent's test episodes; or in `note`, why there are none."""
    if not films and not note:
        return
    yield Heading(3, f"{run}: the agent plays")
    for film in films:
        yield Paragraph(film.describe(), f"{film.name.capitalize()} return.")
        yield Player(film.played())
    if films:
        text = "Click the picture or press space to play; arrow keys go a frame back and on, + and - change the speed."
        predicted = " M expects each frame from the real frames and actions before it; of the first, nothing."
        yield Paragraph(text + (predicted if len(films[0].parts) > 1 else ""))
    if note:
        yield Paragraph(note)


def play_section(title: str, page: Path) -> Iterator[Block]:
    """The link to what `wm play` has written into a run, and whether it plays with the models that the run has now. No
    manifest lists that page, so another one is not linked."""
    if not page.is_file():
        return
    again = "`wm play` writes it again"
    if not is_filled(page):
        yield Paragraph(f"{page.name} is not what this version of `wm play` writes, so it is not linked; {again}.")
        return
    yield Link(page, f"Play inside the dream of {title}")
    changed = changed_models(page, page.parent)
    if changed is None:
        yield Paragraph(f"The page does not say which V, M and C it plays with; {again}.")
    elif changed:
        yield Paragraph(f"The page is older than the {' and '.join(changed)} of this run; {again}.")


def vae_section(run: str, artifact: Artifact | None, log: Log) -> Iterator[Block]:
    """The section on V, finished or in training, with its metrics."""
    if not artifact and not log:
        return
    yield Heading(3, f"{run}: V, the autoencoder")
    if artifact:
        metrics, settings = artifact.metrics, artifact.settings
        yield Paragraph(
            f"{settings['network']} network, {settings['latent']} latents, {metrics['parameters']:,} parameters; "
            f"its episodes have {metrics['rows']:,} frames. On the held-out ones its squared error is "
            f"{metrics['validation_error']:.1f} a frame. The mean image alone has {metrics['mean_image_error']:.1f}. "
            f"The KL divergence is {metrics['validation_kl']:.0f} nats."
        )
        if metrics.get("probe"):
            yield Table(
                ["linear probe", "R2", "R2 untrained", "error", "frames"],
                [
                    [name, *(_number(r.get(figure), form) for figure, form in _PROBED.items())]
                    for name, r in metrics["probe"].items()
                ],
            )
        if strip := _picture(artifact, "reconstructions.png"):
            alt = f"{run}: held-out frames, V's reconstructions and their error; typical frames and the hardest"
            yield Picture(strip, alt, "Held-out frames, their reconstructions, and the error, four times as bright.")
    yield _losses(log, "V's loss (nats) on training batches and on held-out episodes.")
    parts = {"error": "pixels", "kl": "KL", "position_error": "position targets"}
    curves = [_curve(log, key, name, relative=True) for key, name in parts.items()]
    yield _chart("step", "share of the first", curves, "The terms of V's loss, each relative to its first value.")


def mdnrnn_section(run: str, artifact: Artifact | None, log: Log) -> Iterator[Block]:
    """The section on M, finished or in training, with its metrics."""
    if not artifact and not log:
        return
    yield Heading(3, f"{run}: M, the predictor")
    if artifact:
        metrics = artifact.metrics
        yield Table(
            ["next latent, held-out episodes", "M", "linear", "persistence", "mean"],
            [
                ["squared error", *(_number(metrics[name], ".3g") for name in
                 ("error", "error_linear", "error_persistence", "error_mean"))],
                ["NLL per dimension", *(_number(metrics[name]) for name in
                 ("nll", "nll_linear", "nll_persistence", "nll_mean"))],
            ],
        )  # fmt: skip
        reward, end = metrics["reward"], metrics["end"]
        text = f"Ends: {end['observed']:.0f} observed, {end['expected']:.1f} were predicted (Brier score "
        text += f"{end['brier']:.2g}; {end['brier_rate']:.2g} for the constant rate). "
        if reward.get("recall") is not None:
            rare = "of those that differ from the most frequent one are predicted within a step, at precision 0.5."
            text += f"Rewards: {reward['recall']:.0%} {rare}"
        yield Paragraph(text)
        if metrics.get("velocity"):
            rows = [
                [name, *(_number(r[key]) for key in ("z", "z_untrained_h", "z_h"))]
                for name, r in metrics["velocity"].items()
            ]
            yield Table(["linear probe (R2)", "from z", "from [z, untrained h]", "from [z, h]"], rows)
        yield from _open_loop(metrics["open_loop"], HELD_OUT)
        yield from _positions(metrics.get("positions") or {}, metrics.get("newest", {}).get("positions", {}))
        if conclusion := event_conclusion(metrics):
            yield Paragraph(conclusion, f"Verdict {HELD_OUT}")
    yield _losses(log, "M's loss on training batches and on held-out episodes.")


def _positions(errors: dict[str, Any], newest: dict[str, Any]) -> Iterator[Block]:
    """A table of what predictions mean in the environment's own units, in all held-out episodes and in the `newest`."""
    names = ("M", "linear", "persistence", "mean")
    rows = []
    for label, error in errors.items():
        for step in sorted(error.get("M", {}), key=int):
            values = [error["V"], *(error.get(name, {}).get(step) for name in names)]
            if newest:
                own = newest.get(label, {"V": None})
                values += [own["V"], own.get("M", {}).get(step)]
            if error["M"][step] is not None:
                rows.append([label, step, *(_number(value, ".3g") for value in values)])
    if rows:
        last = ["V, newest episodes", "M, newest episodes"] if newest else []
        yield Table(["error of positions", "steps ahead", "V itself", *names, *last], rows)


def read_fidelity(dream: Artifact) -> dict[str, Any] | None:
    """What a dream measured of all policies; None if it measured none. Raises BadData naming what is wrong in it."""
    if FIDELITY not in dream.manifest["files"]:
        return None
    way_out = f"restore it, or remove {dream.folder} and dream again"
    fidelity: dict[str, Any] = dream.read_json(FIDELITY, _fidelity, way_out)
    return fidelity


def dream_section(run: str, artifact: Artifact | None, fidelity: dict[str, Any] | None) -> Iterator[Block]:
    """The section on the dream, with a chart of its policies where they were read."""
    if not artifact:
        return
    metrics = artifact.metrics
    yield Heading(3, f"{run}: the dream and the real environment")
    own = whose(metrics["agent"])
    if conclusion := event_conclusion(metrics):
        yield Paragraph(conclusion, f"Verdict on {own} episodes")
    returns = [with_interval(metrics[f"{name}_return"], metrics[f"{name}_return_ci95"]) for name in ("dream", "real")]
    ratio = metrics["z_variance_ratio"]
    variance = f"The variance of latents is {ratio[1]:.2f} times the real one." if ratio else ""
    yield Paragraph(
        f"The rank correlation of returns in the dream and in the real environment is {format_correlation(metrics)} "
        f"over {metrics['policies']} policies: {metrics['agent']}. {own.capitalize()} return is {returns[0]} in the "
        f"dream and {returns[1]} in the real environment, in episodes of {metrics['dream_length']:.0f} and "
        f"{metrics['real_length']:.0f} steps. {variance} {ranking_conclusion(metrics)}".rstrip()
    )
    yield from _open_loop(metrics["open_loop"], f"on {own} episodes")
    if animation := _picture(artifact, "dream.gif"):
        alt = f"{run}, moving: the real environment, V's reconstruction, and M's dream from the same start"
        caption = "The same start and the same actions: the real environment, V's reconstruction, the dream."
        yield Picture(animation, alt, caption)
    if fidelity is not None:
        caption = "Every policy in the dream and in the real environment; later generations have a stronger colour."
        yield Chart(to_svg(policies(fidelity)), caption)


def dreamer_section(run: str, artifact: Artifact | None, dream: Artifact | None, log: Log) -> Iterator[Block]:
    """The section on a Dreamer, finished or in training, with its metrics."""
    if not artifact and not log:
        return
    yield Heading(3, f"{run}: the Dreamer")
    if artifact:
        metrics = artifact.metrics
        text = (
            f"{metrics['parameters']:,} parameters, {metrics['env_steps']:,} environment steps, "
            f"{metrics['updates']:,} updates, a replay of {metrics['capacity']:,} steps."
        )
        if metrics["first_squared_error"] is not None:
            error = f"{metrics['squared_error']:.1f} a frame, {metrics['first_squared_error']:.1f} at first"
            text += f" The world model's squared error is {error}."
        yield Paragraph(text)
        if strip := _picture(artifact, "open-loop.png"):
            alt = f"{run}: real frames, the Dreamer's open-loop prediction from the same actions, and the error"
            yield Picture(strip, alt, "Open-loop prediction of real actions.")
    returns = [_curve(log, "episode_return", "mean of the last 100 training episodes", along="env_steps")]
    yield _chart("environment step", "return", returns, "The return of training episodes.")
    terms = ("squared_error", "reward", "continue", "kl")
    curves = [_curve(log, name, name, relative=True, along="updates") for name in terms]
    caption = "The terms of the world model's loss, each relative to its first value."
    yield _chart("update", "share of the first", curves, caption)
    if dream:
        rows = [
            [ahead, _number(errors["dream"], ".1f"), _number(errors["persistence"], ".1f"), str(errors["windows"])]
            for ahead, errors in sorted(dream.metrics["open_loop"].items(), key=lambda pair: int(pair[0]))
            if errors
        ]
        yield Table(["steps ahead", "squared error a pixel", "persistence", "windows"], rows)
        if animation := _picture(dream, "dream.gif"):
            alt = f"{run}, moving: the real environment, and the Dreamer's open-loop prediction"
            yield Picture(animation, alt, "The same actions: the real environment, the Dreamer's prediction.")


def visible_probes(artifact: Artifact) -> dict[str, float]:
    """R2 of a linear probe for every label that a single frame shows."""
    hidden = read_env(artifact).hidden_labels
    probe = artifact.metrics.get("probe") or {}
    return {name: r["r2"] for name, r in probe.items() if name not in hidden and r["r2"] is not None}


def _open_loop(errors: dict[str, Any], where: str) -> Iterator[Block]:
    """M's open-loop prediction with all baselines: a conclusion, a table and a chart."""
    if conclusion := prediction_conclusion(errors, where):
        yield Paragraph(conclusion, "Verdict")
    rows = [
        [
            step,
            *(_number(e[name], ".3g") for name in PREDICTORS),
            format_ratio(e),
            prediction_word(e) or "–",
        ]
        for step, e in sorted(errors.items(), key=lambda pair: int(pair[0]))
        if e
    ]
    if rows:
        yield Table(["open loop, steps ahead", *PREDICTORS, "M / best baseline", "by its interval"], rows)
    yield Chart(to_svg(open_loop(errors)), f"Open-loop prediction of real actions: squared error of z, {where}.")


def _losses(log: Log, caption: str) -> Chart:
    curves = [_curve(log, "loss", "training"), _curve(log, "validation_loss", "validation")]
    return _chart("step", "loss", curves, caption)


def _chart(x_label: str, y_label: str, curves: Sequence[Curve], caption: str) -> Chart:
    return Chart(to_svg(Plot(x_label, y_label, curves)), caption)


def _curve(log: Log, key: str, name: str, relative: bool = False, along: str = "step") -> Curve:
    """A column of the log `along` another, or, in the log of an earlier version without that, along the log's steps."""
    lines = [line for line in log if isinstance(line.get(key), int | float)]
    first = lines[0][key] if relative and lines and lines[0][key] else 1.0
    return Curve(
        name, [line[along if along in line else "step"] for line in lines], [line[key] / first for line in lines]
    )


def _number(value: float | None, form: str = "z.2f") -> str:
    return "–" if value is None else format(value, form)
