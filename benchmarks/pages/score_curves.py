"""The figure of docs/results/scores.md: validated return against environment steps, one panel per environment."""

from matplotlib.figure import Figure

from benchmarks.pages.score_rows import Row
from wm.report.plots import figure_png

COLORS = {
    "ppo": "tab:red",
    "ppo-dream": "tab:cyan",
    "cma": "tab:purple",
    "cma-trained": "tab:blue",
    "cma-untrained": "tab:orange",
    "cma-none": "tab:gray",
}
LABELS = {
    "ppo": "PPO",
    "ppo-dream": "PPO in the dream",
    "cma": "CMA-ES",
    "cma-trained": "CMA-ES, h of M",
    "cma-untrained": "CMA-ES, h of an untrained M",
    "cma-none": "CMA-ES, z alone",
}

_PRESETS = {"ppo-dream": "dream"}  # of the others: laptop


def whole_curve(rows: list[Row], row: Row) -> list[list[float]]:
    """A search's curve. A second round of CMA-ES follows the first; an ablation of it only shows its own part."""
    if not row["agent"].startswith("cma"):
        return row["curve"]
    firsts = [
        one for one in rows if (one["env"], one["agent"], one["preset"]) == (row["env"], "cma-round1", row["preset"])
    ]
    first = next((one["curve"] for one in firsts if one["training_seeds"] == row["training_seeds"]), [])
    played = first[-1][0] if first else 0
    return first[0 if row["agent"] == "cma" else -1 :] + [[played + steps, value] for steps, value in row["curve"]]


def curves(rows: list[Row], envs: list[str]) -> bytes:
    """A PNG with the searches of every environment."""
    figure = Figure(figsize=(9, 2.7 * max(-(-len(envs) // 2), 1)), dpi=100, layout="constrained")
    panels = list(figure.subplots(-(-len(envs) // 2), 2, squeeze=False).flat)
    for axes in panels[len(envs) :]:
        axes.remove()
    for axes, env in zip(panels, envs, strict=False):
        for agent, color in COLORS.items():
            same = [
                row
                for row in rows
                if (row["env"], row["agent"], row["preset"]) == (env, agent, _PRESETS.get(agent, "laptop"))
            ]
            for number, row in enumerate(same):
                steps, values = zip(*whole_curve(rows, row), strict=True)
                label = LABELS[agent] if not number else None
                millions = [step / 1e6 for step in steps]
                axes.plot(millions, values, color=color, marker="o", markersize=3, label=label)
        for row in rows:
            if (row["env"], row["agent"]) == (env, "random"):
                axes.axhline(row["mean"], color="tab:green", linestyle="--", linewidth=1)
        axes.set(title=env, xlabel="million environment steps", ylabel="validated return")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    return figure_png(figure)
