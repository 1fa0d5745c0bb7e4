"""What `wm report` says of V, of M and of the dream, each from its artifact and its log of metrics."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from wm.artifacts.runs import Artifact
from wm.envs.registry import EnvConfig
from wm.errors import WmError
from wm.report import charts
from wm.report.document import Block, Chart, Heading, Paragraph, Picture, Table
from wm.report.plots import Curve
from wm.telemetry import metrics_log as metrics


def vision(title: str, made: Artifact | None, folder: Path) -> Iterator[Block]:
    """The section about V, finished or in training; `folder` holds its log."""
    logged = metrics.read(folder)
    if not made and not logged:
        return
    yield Heading(3, f"{title}: V, the picture of a frame")
    if made:
        found, settings = made.metrics, made.settings
        yield Paragraph(
            f"{settings['network']} network, {settings['latent']} latents, {found['parameters']:,} parameters, trained "
            f"on {found['rows']:,} frames. On held-out episodes its squared error is {found['validation_error']:.1f} a "
            f"frame, where always showing the mean picture costs {found['mean_picture_error']:.1f}, and its KL "
            f"{found['validation_kl']:.0f} nats."
        )
        if found.get("probe"):
            yield Table(
                ["a linear probe reads", "R2", "R2 untrained", "error", "frames"],
                [
                    [name, _number(r["r2"]), _number(r["untrained"]), _number(r["error"], ".3g"), f"{r['rows']:,}"]
                    for name, r in found["probe"].items()
                ],
            )
        if (strip := made.folder / "reconstructions.png").is_file():
            alt = f"{title}: held-out frames, V's reconstructions and their error; typical frames and the hardest"
            yield Picture(strip, alt, "Held-out frames, what V makes of them, and the error, four times as bright.")
    yield _losses(logged, "V's loss (nats) on training batches and on held-out episodes.")
    parts = {"error": "pixels", "kl": "KL", "moments": "moments"}
    share = [_curve(logged, key, name, relative=True) for key, name in parts.items()]
    caption = "The parts of V's loss, each beside its first value."
    yield Chart(charts.lines(share, "step", "share of the first"), caption)


def memory(title: str, made: Artifact | None, folder: Path) -> Iterator[Block]:
    """The section about M, finished or in training; `folder` holds its log."""
    logged = metrics.read(folder)
    if not made and not logged:
        return
    yield Heading(3, f"{title}: M, what comes next")
    if made:
        found = made.metrics
        yield Table(
            ["next latent, held-out episodes", "M", "linear", "persistence", "mean"],
            [
                ["squared error", *(_number(found[name], ".3g") for name in
                 ("error", "error_linear", "error_persistence", "error_mean"))],
                ["NLL per dimension", *(_number(found[name]) for name in
                 ("nll", "nll_linear", "nll_persistence", "nll_marginal"))],
            ],
        )  # fmt: skip
        reward, end = found["reward"], found["end"]
        told = f"Ends: {end['happened']:.0f} happened, {end['expected']:.1f} were expected (Brier score "
        told += f"{end['brier']:.2g}, {end['brier_rate']:.2g} for always saying the rate). "
        if reward.get("recall") is not None:
            told += f"Rewards: {reward['recall']:.0%} of those not zero are foretold within a step."
        yield Paragraph(told)
        if found.get("velocity"):
            rows = [
                [name, *(_number(r[key]) for key in ("z", "z_untrained_h", "z_h"))]
                for name, r in found["velocity"].items()
            ]
            yield Table(["a linear probe reads (R2)", "from z", "from [z, untrained h]", "from [z, h]"], rows)
        known = dict(sorted((int(step), errors) for step, errors in found["open_loop"].items() if errors))
        curves = [Curve(name, list(known), [e[name] for e in known.values()]) for name in ("M", "persistence", "mean")]
        caption = "Following real actions without looking: squared error of z, on held-out episodes."
        yield Chart(charts.lines(curves, "steps ahead", "squared error of z", ticks_at=True), caption)
    yield _losses(logged, "M's loss on training batches and on held-out episodes.")


def dream(title: str, made: Artifact | None) -> Iterator[Block]:
    """The section about the dream."""
    if not made:
        return
    found = made.metrics
    yield Heading(3, f"{title}: the dream beside reality")
    rho = "undefined" if found["rho"] is None else f"{found['rho']:.2f}"
    if found["rho_ci95"]:
        rho += f" ({found['rho_ci95'][0]:.2f} to {found['rho_ci95'][1]:.2f})"
    returns = [f"{found[f'{where}_return']:.1f} ± {found[f'{where}_return_ci95']:.1f}" for where in ("dream", "real")]
    yield Paragraph(
        f"The rank correlation of return in the dream and in reality is {rho} over {found['policies']} policies: "
        f"{found['agent']}. The controller returned {returns[0]} in the dream and {returns[1]} in reality, in episodes "
        f"of {found['dream_length']:.0f} and {found['real_length']:.0f} steps. Latents vary "
        f"{found['z_variance_ratio'][1]:.2f} times as much as in reality."
    )
    if (animation := made.folder / "dream.gif").is_file():
        alt = f"{title}, moving: reality, what V sees of it, and M's dream from the same start"
        caption = "From the same start, with the same actions: reality, V's picture of it, the dream."
        yield Picture(animation, alt, caption)
    try:
        compared = json.loads(made.read_bytes("fidelity.json"))
    except (OSError, KeyError, ValueError, WmError):
        return
    labels = ("return in the dream", "return in reality")
    svg = charts.scatter(compared["dream"], compared["real"], *labels, f"rank correlation {rho}")
    yield Chart(svg, "Every policy in the dream and in reality; later generations are stronger in colour.")


def dreamer(title: str, made: Artifact | None, dreamt: Artifact | None, folder: Path) -> Iterator[Block]:
    """The section about a Dreamer, finished or in training; `folder` holds its log."""
    logged = metrics.read(folder)
    if not made and not logged:
        return
    yield Heading(3, f"{title}: the Dreamer")
    if made:
        found = made.metrics
        told = (
            f"{found['parameters']:,} parameters, {found['env_steps']:,} environment steps, {found['updates']:,} "
            f"updates, a replay of {found['capacity']:,} steps."
        )
        if found["first_picture"] is not None:
            error = f"{found['picture']:.1f} a frame, {found['first_picture']:.1f} at first"
            told += f" The world model's squared error is {error}."
        yield Paragraph(told)
        if (strip := made.folder / "open-loop.png").is_file():
            alt = f"{title}: what happened, what the Dreamer imagined from the same actions, and the error"
            yield Picture(strip, alt, "Following real actions without looking.")
    returns = [_curve(logged, "episode_return", "mean of the last 100 training episodes")]
    yield Chart(charts.lines(returns, "environment step", "return"), "What training episodes returned.")
    share = [_curve(logged, name, name, relative=True) for name in ("picture", "reward", "end", "kl")]
    yield Chart(charts.lines(share, "environment step", "share of the first"), "The parts of the world model's loss.")
    if dreamt:
        rows = [
            [ahead, _number(errors["dream"], ".1f"), _number(errors["persistence"], ".1f"), str(errors["starts"])]
            for ahead, errors in sorted(dreamt.metrics["open_loop"].items(), key=lambda pair: int(pair[0]))
            if errors
        ]
        yield Table(["steps ahead", "squared error a pixel", "keeping the last frame", "starts"], rows)
        if (animation := dreamt.folder / "dream.gif").is_file():
            alt = f"{title}, moving: reality, and what the Dreamer imagines from the same actions"
            yield Picture(animation, alt, "With the same actions: reality, and the Dreamer's imagination.")


def readable(made: Artifact) -> dict[str, float]:
    """R2 of every label a linear probe was asked for and a single frame shows."""
    known = EnvConfig(**json.loads(made.read_bytes("model.json"))["env"]).spec().probe
    hidden = known.hidden if known else ()
    read = made.metrics.get("probe") or {}
    return {name: r["r2"] for name, r in read.items() if name not in hidden and r["r2"] is not None}


def _losses(lines: list[dict[str, Any]], caption: str) -> Chart:
    curves = [_curve(lines, "loss", "training"), _curve(lines, "validation_loss", "validation")]
    return Chart(charts.lines(curves, "step", "loss"), caption)


def _curve(lines: list[dict[str, Any]], key: str, name: str, relative: bool = False) -> Curve:
    found = [(line["step"], line[key]) for line in lines if isinstance(line.get(key), int | float)]
    first = found[0][1] if relative and found and found[0][1] else 1.0
    return Curve(name, [step for step, _ in found], [value / first for _, value in found])


def _number(value: float | None, form: str = ".2f") -> str:
    return "–" if value is None else format(value, form)
