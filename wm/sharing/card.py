"""The card of a shared run: what the agent is, what it reached and at what cost, for people and for the Hub's index.

https://huggingface.co/docs/hub/model-cards describes the front matter. `model-index` has the score as reinforcement
learning's leaderboards read it: the mean return, `+/-`, and the standard deviation over episodes.
"""

import json
import math
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from wm.artifacts.runs import Artifact
from wm.artifacts.workspace import env_slug
from wm.report.characters import visible
from wm.report.conclusions import HELD_OUT, dream_conclusions, prediction_conclusion, score_conclusion
from wm.report.document import Block, Commands, Heading, Paragraph, Picture, Table, to_markdown
from wm.report.run_summary import encoding_seconds, format_score
from wm.sharing.bundle import public_manifest
from wm.sharing.contents import Contents
from wm.stats import student_quantile
from wm.units import format_duration, format_size

_NAMES = {
    "vae": "V, the VAE",
    "mdnrnn": "M, the predictor",
    "controller": "C, the controller",
    "dreamer": "the Dreamer",
}


def write_card(contents: Contents, artifacts: Mapping[str, Artifact], address: str) -> bytes:
    """README.md of a shared run that others pull from `address` (empty: from a copy of the folder)."""
    score = artifacts.get(f"evaluation/{contents.agent}")
    metrics = score.metrics if score and "random" in score.metrics else None
    blocks = [
        *_film(contents),
        *_score(metrics),
        *_use(contents, address),
        *_training(contents, artifacts),
        *_limits(contents, artifacts, metrics),
    ]
    # The pictures are linked relative to the card, which lies above the artifacts.
    text = to_markdown(f"{contents.env}: a world model and its agent", blocks, Path())
    return visible(_front_matter(contents, metrics)).encode() + b"\n" + text


def _film(contents: Contents) -> Iterator[Block]:
    dream = "dream" if contents.agent == "controller" else f"dream-{contents.agent}"
    if f"{dream}/dream.gif" in contents.files:
        alt = f"{contents.env}: a real episode beside the model's dream of it"
        caption = "A real episode, what the model makes of it, and its dream from the same start and actions."
        yield Picture(Path(dream, "dream.gif"), alt, caption)
    elif "vae/reconstructions.png" in contents.files:
        yield Picture(Path("vae", "reconstructions.png"), f"{contents.env}: frames and V's reconstructions", "")


def _score(metrics: dict[str, Any] | None) -> Iterator[Block]:
    if metrics is None:
        yield Paragraph("This agent was not evaluated on test episodes.", "No score.")
        return
    rows = [["agent", format_score(metrics), str(metrics["episodes"])]]
    rows += [["random policy", format_score(metrics["random"]), str(metrics["random"]["episodes"])]]
    yield Table(["", "mean return ± 95 % interval", "test episodes"], rows)
    conclusion = score_conclusion(metrics)
    preview = " Too few episodes to be quoted." if metrics["preview"] else ""
    yield Paragraph(f"{conclusion[0].upper()}{conclusion[1:]}. Protocol: {metrics['protocol']}.{preview}", "Verdict.")


def _use(contents: Contents, address: str) -> Iterator[Block]:
    yield Heading(2, "Use")
    extra = {"hf": "[hub]", "s3": "[s3]"}.get(address.partition("://")[0], "")
    run = f"runs/{env_slug(contents.env)}"
    install = f"pip install -e '.{extra}'  # in a checkout of wm, which is not on PyPI yet"
    lines = [install, f"wm pull {address or 'path/to/this/folder'}"]
    agent = "" if contents.agent == "controller" else f" --agent {contents.agent}"
    lines += [f"wm evaluate --env {shlex.quote(contents.env)}{agent}", f"wm report {run}"]
    yield Commands(lines)
    yield Paragraph(
        "Weights are safetensors, everything else is JSON, pictures and Zarr; nothing here is a pickle. wm pull checks "
        "every file against contents.json before it is used."
    )


def _training(contents: Contents, artifacts: Mapping[str, Artifact]) -> Iterator[Block]:
    yield Heading(2, "Training")
    rows, commands, trained = list[list[str]](), list[str](), list[Mapping[str, Any]]()
    for name in contents.names:
        artifact = artifacts[name]
        provenance = public_manifest(artifact)["provenance"]
        size = sum(file.size for file in contents.below(name).values())
        label = _NAMES.get(contents.artifacts[name], name)
        rows.append([label, _parameters(artifact), format_duration(artifact.wall_seconds), format_size(size)])
        commands.append(provenance["command"])
        trained.append(provenance)
    yield Table(["", "parameters", "time", "size"], rows)
    latest = max(trained, key=lambda provenance: str(provenance["finished"]))
    versions = ", ".join(f"{name} {number}" for name, number in latest["versions"].items() if number)
    total = format_duration(_total_seconds(artifacts))
    devices = {str(artifact.metrics.get("trained_on", "cpu")) for artifact in artifacts.values()} - {"cpu"}
    hardware = ", ".join([latest["machine"], *sorted(devices)])
    yield Paragraph(f"{hardware}, {total} in all with collecting.", "Hardware and time.")
    yield Paragraph(f"commit {latest['commit'] or 'unknown'}, Python {latest['python']}, {versions}.", "Code.")
    yield Commands(list(dict.fromkeys(filter(None, commands))))


def _parameters(artifact: Artifact) -> str:
    count = artifact.metrics.get("parameters")
    return f"{count:,}" if isinstance(count, int) else "–"


def _total_seconds(artifacts: Mapping[str, Artifact]) -> float:
    """With collecting, encoding, and the trainings that a later round continues."""
    beside = sum(float(artifact.metrics.get(name, 0.0)) for artifact in artifacts.values()
                 for name in ("collecting_seconds", "seconds_before"))  # fmt: skip
    made = sum(artifact.wall_seconds for name, artifact in artifacts.items() if not name.startswith("latents"))
    return made + encoding_seconds(artifacts) + beside


def _limits(contents: Contents, artifacts: Mapping[str, Artifact], metrics: dict[str, Any] | None) -> Iterator[Block]:
    yield Heading(2, "Limits")
    if metrics is not None:
        yield Paragraph("The interval is over test episodes of one training seed; others may train worse or better.")
    mdnrnn = artifacts.get("mdnrnn")
    if mdnrnn and (conclusion := prediction_conclusion(mdnrnn.metrics["open_loop"], HELD_OUT)):
        yield Paragraph(conclusion)
    dream = artifacts.get("dream" if contents.agent == "controller" else f"dream-{contents.agent}")
    if dream and dream.metrics["agent"] != "dreamer" and (conclusions := dream_conclusions(dream.metrics)):
        yield Paragraph(conclusions)
    if contents.trained_on:
        yield Paragraph(contents.episodes_along)


def _front_matter(contents: Contents, metrics: dict[str, Any] | None) -> str:
    """The YAML at the top. JSON's strings are strings of YAML too."""
    env = json.dumps(contents.env)
    lines = ["---", "library_name: wm", "pipeline_tag: reinforcement-learning", "tags:"]
    lines += [f"- {tag}" for tag in (env, "reinforcement-learning", "world-model", "world-models-wm")]
    if metrics is not None:
        lines += [
            "model-index:",
            f"- name: {json.dumps(f'{contents.agent} of {contents.env}')}",
            "  results:",
            "  - task:",
            "      type: reinforcement-learning",
            "      name: reinforcement-learning",
            "    dataset:",
            f"      name: {env}",
            f"      type: {env}",
            "    metrics:",
            "    - type: mean_reward",
            f"      value: {metrics['mean']:.2f} +/- {_deviation(metrics):.2f}",
            f"      name: mean_reward of {metrics['episodes']} episodes +/- standard deviation",
            "      verified: false",
        ]
    return "\n".join([*lines, "---", ""])


def _deviation(score: Mapping[str, Any]) -> float:
    """The standard deviation over episodes, from the half-width of the mean's interval."""
    count = score["episodes"]
    return score["ci95"] * math.sqrt(count) / student_quantile(0.975, count - 1) if count > 1 else 0.0
