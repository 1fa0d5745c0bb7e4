"""Renders docs/results/scores.md, its figure and README's table from docs/results.json, one row per training seed.

`python -m benchmarks.pages.scores add runs/Pong laptop` first adds the evaluations of a run.
"""

import json
import statistics
import sys
from pathlib import Path

import numpy as np

from benchmarks.pages.markdown import markdown_table, replaced
from benchmarks.pages.score_curves import curves
from benchmarks.pages.score_rows import KEYS, Row, rows_of
from benchmarks.pages.score_seeds import (
    interquartile_mean,
    interval,
    normalized,
    seeds_interval,
    seeds_of,
    worst,
)
from wm.artifacts.workspace import NO_STICKY
from wm.report.conclusions import prediction_summary

ROOT = Path(__file__).resolve().parents[2]
RESULTS, PAGE, CURVES, README = (
    ROOT / "docs" / "results.json",
    ROOT / "docs" / "results" / "scores.md",
    ROOT / "docs" / "images" / "learning-curves.png",
    ROOT / "README.md",
)
ORDER = ("Pong", "LunarLander", "Breakout", "CarRacing", "CartPole", "Acrobot", "Catch")
AGENTS = {
    "ppo": "preset",
    "ppo-dream": "preset",
    "ppo-after-dream": "in reality, 600,000 steps more from the C that learned in the dream",
    "ppo-one-V": "the preset until 2026-11-30, one round of 2 M steps; on an older machine",
    "ppo-one-V-no-sticky": "no sticky actions, no-ops at the start",
    "ppo-3-M-steps": "one round of 3 M steps, on another machine",
    "ppo-shorter": "the preset until 2026-11-30, with at most 3 M steps; on an older machine",
    "ppo-shorter-no-sticky": "no sticky actions, no-ops at the start",
    "ppo-discount-0.99": "discount 0.99 instead of 0.999",
    "ppo-foreground": "foreground frames, the preset until wall and score were hidden",
    "ppo-dream-16-steps": "the preset until actions were sticky in dreams, dreams of 16 steps",
    "ppo-dream-50-steps": "the preset until a lost life was an end for M, dreams of 50 steps",
    "ppo-dream-20-rounds": "the preset until M learned in four times larger steps",
    "ppo-dream-one-V": "the preset until V, M and C were trained anew in a later round",
    "ppo-dream-foreground": "foreground frames, the preset until wall and score were hidden",
    "ppo-foreground-no-sticky": "foreground frames; no sticky actions, no-ops at the start",
    "ppo-no-sticky": "no sticky actions, no-ops at the start",
    "ppo-dream-no-sticky": "no sticky actions, no-ops at the start",
    "random-no-sticky": "no sticky actions, no-ops at the start",
    "cma": "CMA-ES; the preset until version 0.3",
    "cma-round1": "after the first of two rounds",
    "cma-350": "one round of 350 generations",
    "cma-350-round2": "one round of 350 generations, then a second round",
    "cma-trained": "C on [z, h], 90 generations",
    "cma-untrained": "C on [z, h] with an untrained M",
    "cma-none": "C on z alone",
    "cma-160": "160 generations, the final phase from the 107th on",
    "cma-final-20": "20 generations in the final phase instead of 40",
    "cma-one-search": "one search instead of four restarts",
    "cma-one-search-again": "one search, on another machine",
    "cma-32": "32 latents without orientation targets",
    "cma-linear": "linear C on [z, h]",
    "cma-linear-untrained": "linear C on [z, h], untrained M, two tracks in the final phase",
    "cma-linear-none": "linear C on z alone, two tracks in the final phase",
    "cma-dream": "C evolved in the dream alone",
    "cma-dream-round2": "C evolved in the dream alone, second round",
}
# The search of these environments changed after its rows were measured; the rows name their commits.
CHANGED = {
    "LunarLander": "Measured before LunarLander's preset changed: the first 30 generations then searched the weights\n"
    "of [z, h], later ones searched those of z."
}
# Set before the trainings, and the minimum: of a C trained in reality, and in the dream alone.
TARGETS = {
    "Pong": ((18, 13), (14, 5)),
    "LunarLander": ((240, 200), (150, 60)),
    "Breakout": ((100, 40), (40, 18)),
    "CarRacing": ((906, 855), (700, 450)),
    "CartPole": ((500, 480), (450, 300)),
    "Acrobot": ((-80, -95), (-110, -110)),
}
# What the quick preset is to reach; of Acrobot only to be better than random play.
QUICK_MINIMUM = {"Pong": -16, "LunarLander": -60, "Breakout": 10, "CarRacing": 350, "CartPole": 150, "Acrobot": None}


def _of(rows: list[Row], env: str, agent: str, preset: str | None = None) -> list[Row]:
    return [row for row in rows if (row["env"], row["agent"], row["preset"]) == (env, agent, preset)]


def _laptop(rows: list[Row], env: str) -> list[Row]:
    """Those of the laptop preset."""
    return _of(rows, env, "ppo", "laptop")


def _outcome(rows: list[Row], target: tuple[int, int]) -> str:
    if not rows:
        return "not measured"
    mean = statistics.fmean(row["mean"] for row in rows)
    return "reached" if mean >= target[0] else "minimum reached" if mean >= target[1] else "missed"


def _score(rows: list[Row]) -> str:
    """Mean and range over training seeds; of a single seed, its interval over episodes."""
    if not rows:
        return "–"
    if len(rows) == 1:
        return f"{rows[0]['mean']:.1f} ± {rows[0]['ci95']:.1f}"
    means = [row["mean"] for row in rows]
    return f"{statistics.fmean(means):.1f} ({min(means):.1f} to {max(means):.1f})"


def _marked(row: Row) -> str:
    return str(row["env"]) + ("\\*" if row["env"] in CHANGED and row["agent"].startswith("cma") else "")


def table(rows: list[Row]) -> str:
    """Markdown for README: one line per environment, with C trained in reality and in the dream."""
    lines = []
    for env in ORDER:
        if not (best := _laptop(rows, env)):
            continue
        steps = statistics.fmean(row["env_steps"] for row in best)
        minutes = statistics.fmean(row["hours"] for row in best) * 60
        dreamt = _score(_of(rows, env, "ppo-dream", "dream"))
        lines.append([_marked(best[0]), _score(_of(rows, env, "random")), f"**{_score(best)}**", str(len(best)),
                      f"{steps / 1e6:.1f} M", f"{minutes:.0f} min", dreamt])  # fmt: skip
    head = ["environment", "random policy", "in reality", "seeds", "env steps", "training", "in the dream"]
    names = "".join(line[0] for line in lines)
    return markdown_table(head, lines) + _notes(names)


def _notes(names: str) -> str:
    """The notes of the environments that `names` mark."""
    return "".join(f"\n\\* {note}\n" for env, note in CHANGED.items() if f"{env}\\*" in names)


def _spent(row: Row) -> tuple[str, str]:
    """Steps and time of all rounds, where both are known."""
    if row["env_steps"] is None:
        return "–", "–"
    collected = f" ({row['collected_steps']:,} collected)" if "collected_steps" in row else ""
    return f"{row['env_steps']:,}{collected}", f"{row['hours'] * 60:.0f} min"


def page(rows: list[Row]) -> str:
    """Markdown."""
    every = [
        [_marked(row), _agent(row), row["preset"] or "–",
         ", ".join(map(str, row["training_seeds"])) or "–", f"{row['mean']:.2f} ± {row['ci95']:.2f}",
         # Twelve digits identify a file among the rows of a page.
         str(row["episodes"]), *_spent(row), f"`{row['commit']}`", f"`{row['sha256'][:12]}`"]
        for row in rows
    ]  # fmt: skip
    targets = []
    for env, both in TARGETS.items():
        places = _laptop(rows, env), _of(rows, env, "ppo-dream", "dream")
        line = [_marked(places[0][0]) if places[0] else env]
        for measured, target in zip(places, both, strict=True):
            line += [f"{target[0]} ({target[1]})", _score(measured), _outcome(measured, target)]
        targets.append(line)
    parts = [
        "<!-- Rendered by `python -m benchmarks.pages.scores`; do not edit. -->\n",
        "# Scores\n",
        "Mean return over test episodes in the unmodified gymnasium environments, with the half-width of the 95 % "
        "interval. Test seeds are used for nothing else. Atari has frame skip 4 and sticky actions 0.25; in Breakout "
        "the agent presses FIRE automatically. A row comes from one run: `wm evaluate --env Pong --episodes 100`, then "
        "`python -m benchmarks.pages.scores add runs/Pong laptop`. A training keeps the mean or the policy with "
        "the best validation. It has 20 episodes, by CMA-ES 50 for LunarLander and 30 for CarRacing. In dreams by PPO "
        "it has 12, for LunarLander 20 or 40.\n",
        "Each row names the commit it was measured at. Those of CMA-ES are older than version 0.3.0.",
        *(f"\n\\* {note}\n" for note in CHANGED.values()),
        "Targets were set beforehand. \"Reached\" compares the mean over training seeds.\n",
        "Left: the laptop preset, C trained in reality. Right: the dream preset, C trained in the dream alone.\n",
        markdown_table(["environment", "target (minimum)", "in reality", "", "target (minimum)", "in the dream", ""],
                       targets),
        *_seeds(rows),
        *_protocols(rows),
        *_quick(rows),
        "![Validated returns of the searches](../images/learning-curves.png)\n",
        "*The validated mean of each search. A second round follows the first; the random policy is dashed.*\n",
        _NOTES,
        "## Every row\n",
        "The digest is of the run's score.json, which has the return of every episode. Steps and time include all "
        "rounds. Where C learned in the dream, V and M learned from the collected steps; the others validated C. Time "
        "is that of training V, M and C, without collecting, encoding, dreams and evaluation; for CartPole's second "
        "round both are unknown. At commit `7d1e2e324271` a run had two of 16 cores, and a GPU for V and M, which "
        "eight runs shared. Elsewhere it had two cores.\n",
        "- LunarLander's ablations are other second rounds after the same first round (`--memory none` or "
        "`--memory untrained`). Each ran in one process beside other searches.\n"
        "- CarRacing's three runs `ppo-dream` shared two cores with each other and with other work, so their training "
        "took three to five hours.\n"
        "- Pong's rows `ppo-dream-20-rounds` took V and the first episodes, and with seed 0 the first M, from runs of "
        "the same settings at commit `82fa737`. Its rows `ppo-dream-one-V` took V and M of two rounds, seed 2's of "
        "six, from runs of the same settings. Breakout's rows in the dream took V, the random episodes and the first "
        "M from runs of the same settings at `f3c7740`. Their rounds up to the tenth, seed 1's up to the ninth, are of "
        "`1fc6c3f`.\n"
        "- Breakout's rows at commit `f9f33dda203c` and Acrobot's by PPO at `639ebf508d20` were given by `--set` what "
        "has since become the preset. These are `mask`, M's `hidden` and `action_repeat`. So were the 5 M "
        "steps of Breakout's rows at `0fee8e7b2660`. Its seed 1 of `ppo-shorter` stopped at a target of 100; there is "
        "none now.\n"
        "- CarRacing's C on [z, h], with a trained or an untrained M, uses V and M of seed 0. Compare it with 20 "
        "generations in the final phase.\n",
        markdown_table(["environment", "agent", "preset", "training seed", "return", "episodes", "env steps",
                        "training", "commit", "digest"], every),
        "## Dream and real environment\n",
        "![A real episode of CarRacing and M's dream](../images/dream-carracing.png)\n",
        "*CarRacing, laptop preset. The dream follows the real car for about 40 steps, then diverges.*\n",
        "![A real episode of Breakout and M's dream](../images/dream-breakout.png)\n",
        "*Breakout, dream preset in eighteen rounds, M of the last one. The frames hide the wall. The ball is where "
        "the real one is for 52 steps; at step 66 it is lost.*\n",
        "`wm dream` evaluates up to 32 means of a search by CMA-ES, or up to 16 policies along a training by PPO. It "
        "does so in the dream and in the real environment. The rank correlation of the returns has its bootstrap "
        "interval. Return and length are of the controller's own episodes, truncated at 500 steps. The variance is "
        "that of the latents in the dream, as a share of the real one (median over latents). M's squared error after "
        "15 open-loop steps is a share of the best of linear autoregression, persistence and the mean latent. It is "
        "called better, no better or worse where the interval of the difference is stored.\n",
        markdown_table(["environment", "agent", "training seed", "rank correlation", "last third",
                "return: dream / real", "length: dream / real", "variance", "error at 15 steps"],
               [_dream(row) for row in rows if "dream" in row and row["preset"] != "quick"]),
    ]  # fmt: skip
    return "\n".join(parts)


# Agent and preset of a C trained in reality, and of one trained in the dream.
_PLACES = (("ppo", "laptop", "reality"), ("ppo-dream", "dream", "the dream"))


def _seeds(rows: list[Row]) -> list[str]:
    """The section about several training seeds."""
    lines = []
    for env in ORDER:
        for agent, preset in (("ppo", "laptop"), ("ppo-dream", "dream"), ("cma", "laptop"), ("dreamer", "nano")):
            if len(own := _of(rows, env, agent, preset)) > 1:
                means, bounds = seeds_of(own), seeds_interval(seeds_of(own))
                interval_text = f"{bounds[0]:.1f} to {bounds[1]:.1f}" if bounds else "–"
                lines.append(
                    [_marked(own[0]), f"`{agent}`", str(len(own)), f"{means.mean():.1f}", interval_text, worst(own)]
                )
    head = ["environment", "agent", "seeds", "mean", "95 % interval", "worst seed"]
    aggregates = []
    for number, (agent, preset, place) in enumerate(_PLACES):
        own_rows = {env: _of(rows, env, agent, preset) for env in TARGETS}
        measured = {env: own for env, own in own_rows.items() if own}
        if not measured:
            continue
        random = {env: _of(rows, env, "random")[0]["mean"] for env in measured}
        scaled = normalized(measured, {env: (random[env], TARGETS[env][number][0]) for env in measured})
        bounds = interval(scaled, interquartile_mean)
        interval_text = f"{bounds[0]:.2f} to {bounds[1]:.2f}" if bounds else "–"
        middle = interquartile_mean(np.concatenate(scaled))
        aggregates.append([place, ", ".join(measured), str(sum(map(len, scaled))), f"{middle:.2f}", interval_text])
    return [
        "## Over training seeds\n",
        "A seed counts once, by its mean over the test episodes. Intervals are Student's t over seeds, which takes "
        "returns of seeds for normally distributed; with fewer than three seeds there is none.\n",
        markdown_table(head, lines),
        "The interquartile mean over environments and seeds, after "
        "[Agarwal et al. (2021)](https://arxiv.org/abs/2108.13264). 0 is the random policy, 1 the target; the "
        "bootstrap is stratified by environment.\n",
        markdown_table(["C trained in", "environments", "runs", "interquartile mean", "95 % interval"], aggregates),
    ]


def _protocols(rows: list[Row]) -> list[str]:
    """The agents that were played by both of Atari's protocols."""
    lines = []
    for row in rows:
        if row["agent"].endswith(NO_STICKY):
            usual = _same_training(rows, row)
            seeds = ", ".join(map(str, row["training_seeds"])) or "–"
            agent = f"`{row['agent'].removesuffix(NO_STICKY)}`"
            lines.append(
                [row["env"], agent, seeds, *(f"{one['mean']:.1f} ± {one['ci95']:.1f}" for one in (usual, row))]
            )
    return [
        "## Atari without sticky actions\n",
        "The same agents, trained with sticky actions, in the protocol of older papers. Every action is carried out, "
        "and an episode begins with 1 to 30 no-ops, for otherwise all would be alike. In Breakout they are alike all "
        "the same, because the ball waits for the serve. An agent that acts likeliest plays one game a hundred times. "
        "`wm evaluate --env Pong --set sticky_actions=false`.\n",
        markdown_table(["environment", "agent", "training seed", "sticky actions 0.25", "none"], lines),
    ]


def _quick(rows: list[Row]) -> list[str]:
    """What the quick preset reaches in minutes, of each seed."""
    lines = []
    for env, minimum in QUICK_MINIMUM.items():
        random = _of(rows, env, "random")[0]
        for row in (row for row in rows if (row["env"], row["preset"]) == (env, "quick")):
            better = row["mean"] - row["ci95"] > random["mean"] + random["ci95"]
            lines.append(
                [env, f"`{row['agent']}`", ", ".join(map(str, row["training_seeds"])),
                 f"{random['mean']:.1f} ± {random['ci95']:.1f}",
                 "–" if minimum is None else str(minimum), f"{row['mean']:.1f} ± {row['ci95']:.1f}",
                 "yes" if better else "no", *_spent(row)]
            )  # fmt: skip
    return [
        "## The quick preset\n",
        "What `wm curriculum --quick` learns in minutes. Better: the intervals over episodes do not meet.\n",
        markdown_table(
            ["environment", "agent", "training seed", "random policy", "minimum", "return", "better than random",
             "env steps", "training"],
            lines,
        ),
    ]  # fmt: skip


def _same_training(rows: list[Row], row: Row) -> Row:
    agent = row["agent"].removesuffix(NO_STICKY)
    own = _of(rows, row["env"], agent, row["preset"])
    return next(one for one in own if one["training_seeds"] == row["training_seeds"])


_NOTES = """## What the rows show

- **CarRacing.** PPO on [z, difference of z, previous action] returns 889, 896 and 888 with three seeds. That is 90 more
  than CMA-ES did, with half of the steps. Each action lasts four frames, so 2.6 M steps are 0.65 M decisions. CMA-ES
  evolved eight hidden units on z. A multilayer perceptron that imitates a scripted expert returned 907 ± 3. In M's
  dreams alone, in sixteen rounds, C returns 686, 714 and 577 with three seeds. V and M learned from about 458,000 real
  steps. With one V for all rounds it returned 661, 684 and 505, from 250,000. A dream has 24 actions there. Dreams of
  250 actions, or 1,000 frames, promise 1,256, 1,097 and 1,353, where real episodes of the same length pay 666, 702 and
  562. Ten rounds with dreams of 50 actions returned 414.
- **Pong.** PPO on [z, difference of z] wins by 18.9, 18.5 and 19.0 points in three seeds. It has two rounds, and V
  learns anew from the games of the first round's C. In one round it won by 14 to 18, with 2 M steps and with 3 M.
  CMA-ES loses by 8 to 14. In M's dreams alone, in sixteen rounds, PPO wins by 14.1, 12.2 and 13.8. V and M learned from
  0.77 to 0.93 M real steps. Before M learned in four times larger steps it won by 2.5, 5.3 and 2.7 after twenty rounds.
  Without sticky actions C of seeds 0 and 1 ends every game with 21. These are no rows, for a hundred like games are
  one.
- **CartPole.** In M's dreams alone, in five rounds, C learns to stand for 483, 500 and 500 of 500 steps with three
  seeds. V and M learned from 20,387, 20,051 and 21,225 real steps. With validations these are 57,901, 58,658 and
  52,699. Training in reality took 544,235, 282,480 and 544,245.
- **Acrobot.** In M's dreams alone, in five rounds, C returns -96, -100 and -90 with three seeds. V and M learned from
  about 52,000 real steps. Random actions that are held reach the bar in 46 of 100 episodes, the random policy in one of
  twenty. So M learns from its first episodes what ends them. PPO in reality returns -72, -73 and -76 with three seeds;
  an action lasts three steps there. With single steps it still returned -500 after 225,000. A C of the dream needs no
  such help. Where it goes on in reality, it returns -67, -75 and -69 after 600,000 steps.
- **LunarLander.** PPO returns 219, 228 and 235 with three seeds. It returns less than 100 in 11, 10 and 6 of 100
  episodes. A discount of 0.99 instead of 0.999 and another V returned 171, and less than 100 in 23 episodes. CMA-ES
  returned 158 from two rounds and twice the steps. Its first round was restarted three times in whitened coordinates: z
  is up to six times more sensitive to some state variables than to others. In M's dreams alone, in twelve rounds, C
  returns 113, 104 and 75 with three seeds. V and M learned from 307,164 to 364,748 real steps. One V for all of
  fourteen rounds returned as much, from less than 200,000. M expects apart what the last step of an episode pays:
  before, its dreams paid a third of what a crash costs.
- **Breakout.** PPO returns 207, 249 and 192 with three seeds, from 5 M steps. It is still rising there. With 3 M it
  returned 85, 86 and 73, on an older machine; seed 1 stopped after 1.5 M. With other frames it had returned 38. Frames
  hide the wall and the score now. They showed the foreground before, in which a paddle that rests disappears:
  its place was missed by 19 pixels, and is by 1.3. In M's dreams alone, in sixteen rounds, C returns 36, 43 and 36 with
  three seeds. M has memory, because the ball is hidden too while it is at the wall. Dreams last 24 steps, a lost life
  ends them, and a quarter of the actions are the one before again. In dreams that carry out every action C learned to
  move at the last moment. It returned 22, 25 and 24, in ten rounds of fewer gradient steps. In dreams of fifty steps it
  returned 21, 22 and 17. With the foreground a seed returned 18.

The [research log](../research/LOG.md) has every experiment, those that failed too. [What these numbers do not
show](limits.md) has its own page.
"""


def _agent(row: Row) -> str:
    return f"`{row['agent']}`" + (f" ({AGENTS[row['agent']]})" if row["agent"] in AGENTS else "")


def _rho(value: float | None, interval: list[float] | None) -> str:
    return "–" if value is None else f"{value:.2f}" + (f" ({interval[0]:.2f} to {interval[1]:.2f})" if interval else "")


def _dream(row: Row) -> list[str]:
    report = row["dream"]
    return [
        _marked(row),
        _agent(row),
        ", ".join(map(str, row["training_seeds"])),
        _rho(report["rho"], report["rho_ci95"]),
        _rho(report["rho_last_third"], report["rho_last_third_ci95"]),
        f"{report['dream_return']:.1f} ± {report['dream_return_ci95']:.1f} / "
        f"{report['real_return']:.1f} ± {report['real_return_ci95']:.1f}",
        f"{report['dream_length']:.0f} / {report['real_length']:.0f}",
        "–" if report["z_variance_ratio"] is None else f"{report['z_variance_ratio'][1]:.2f}",
        prediction_summary(report["open_loop"]),
    ]


def main() -> None:
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    if sys.argv[1:2] == ["add"]:
        added = rows_of(Path(sys.argv[2]), sys.argv[3])
        known = [[row[key] for key in KEYS] for row in added]
        results = [row for row in results if [row[key] for key in KEYS] not in known] + added
        results.sort(
            key=lambda row: (ORDER.index(row["env"]), row["agent"], row["preset"] or "", row["training_seeds"])
        )
        RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(results))
    CURVES.write_bytes(curves(results, [env for env in ORDER if _laptop(results, env)]))
    README.write_text(replaced(README.read_text(), "scores", table(results)))


if __name__ == "__main__":
    main()
