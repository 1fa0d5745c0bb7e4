"""Settings of `wm train-controller`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from wm.errors import UsageProblem
from wm.settings.base import MOST_EPISODES, Settings, given_as, setting

GENERATIONS_PER_RESTART = 10  # enough to tell a car that drives from one that stays on the spot
GROUP = 8  # environments that a process steps in lockstep; wm/rollouts/players.py says why it is fixed
PPO_STEPS = 1_000_000  # real steps without --max-env-steps: Pong is played well after as many
# Of a generation, and times a candidate plays: the jobs of all are listed before the first is played.
_MOST_CANDIDATES, _MOST_PLAYED = 10_000, 1_000
_LARGEST_SIGMA = 1e3  # from far larger ones the search samples weights that are infinite in 32 bits
# What `none` stands for. Dreams cost little and are short: M's predictions hold for some 50 steps.
_BY_PLACE = {
    "real": {"num_envs": 16, "rollout_steps": 128, "entropy": 0.01},
    "dream": {"num_envs": 512, "rollout_steps": 50, "entropy": 0.02},
}
_OF_PLACE = {"real": {"render"}, "dream": {"temperature", "max_dream_steps", "sticky_share"}}  # of a policy gradient


@dataclass(frozen=True, kw_only=True)
class ControllerSettings(Settings):
    """`wm train-controller`: CMA-ES over a small policy on [mean z, h], or PPO over a larger one."""

    algo: str = setting(
        "cma",
        "Evolve a small C, or train one by gradient.",
        choices=("cma", "sep-cma", "ppo"),
        section="Search",
    )
    in_: str = setting(
        "real",
        "Where C learns; mixed (not with ppo): in the dream, selected by real returns.",
        choices=("real", "dream", "mixed"),
        section="Search",
    )
    memory: str = setting(
        "auto",
        "Last input of C: h of M, h of an untrained M, or none; auto: h of M, but none with ppo.",
        choices=("auto", "trained", "untrained", "none"),
        section="Search",
    )
    # pycma would take 4 + 3 ln(parameters), 14 to 24 for a linear C; a multiple of 8 fills the lockstep.
    popsize: int = setting(
        16, "Candidates per generation.", low=4, high=_MOST_CANDIDATES, section="Search", algorithm="cma"
    )
    # In the final phase four tracks instead of two helped CarRacing: 738 and 698 (2026-11-23); early none was compared.
    episodes_per_eval: int = setting(
        1, "Episodes each candidate plays per generation.", low=1, high=_MOST_PLAYED, algorithm="cma"
    )
    temperature: str = setting(
        "1.0",
        "Temperature of the dream; auto (not with ppo) fits it to real returns.",
        section="Search",
    )
    init_from: str | None = setting(None, "Run to start from, such as runs/Pong.", section="Search", result=False)
    imitate: bool = setting(
        False,
        "With --init-from, new weights that act as the earlier policy did in recorded episodes, as after a new V.",
        newer=True,
    )
    # Presets have their own numbers. Longer searches resume shorter ones.
    max_generations: int = setting(60, "Generations of the search.", low=1, section="Limits", algorithm="cma")
    max_hours: float = setting(0.0, "Hours of training; 0: no limit.", low=0, section="Limits")
    max_env_steps: int = setting(
        0,
        f"Real steps before the last validation; 0: no limit (ppo --in real: {PPO_STEPS:,}).",
        low=0,
        section="Limits",
    )
    target_return: float | None = setting(None, "Stop when a validation reaches this return.", section="Limits")
    head: str = setting(
        "auto",
        "From C's output to an action: argmax, ordered (one output: down, stay, up), tanh (box).",
        choices=("auto", "argmax", "ordered", "tanh"),
        algorithm="cma",
    )
    # Linear, as in Ha & Schmidhuber (2018). CarRacing gains from 8 units on z (2026-11-23), Pong does not.
    hidden: int = setting(0, "Hidden units of C; 0: linear.", low=0, high=256, algorithm="cma")
    # No sweep is on record. The paper's preset and CarRacing's search have 0.1.
    sigma: float = setting(0.3, "CMA-ES' initial step size.", low=1e-6, high=_LARGEST_SIGMA, algorithm="cma")
    # One: only CarRacing stalled by chance, where four restarts cost a thirteenth of the steps (2026-11-24).
    restarts: int = setting(
        1,
        "Searches of ten generations from different seeds; the best by validation continues.",
        low=1,
        high=100,
        algorithm="cma",
    )
    # 0: whole episodes. Pong's search began with 500 steps, which stop ranking candidates later (2026-11-24).
    max_steps: int = setting(
        0, "Truncate training episodes after this many steps; 0: full episodes.", low=0, algorithm="cma"
    )
    render: str = setting(
        "same",
        "Renderer for candidates (never for validations): the same as for V, or fast, where the environment has it.",
        choices=("same", "fast"),
    )
    # 0: two thirds. Pong gained from an earlier one, after 60 of 160 generations instead of 106 (2026-11-24).
    final_phase_after: int = setting(
        0,
        "Generations before the final phase, which evaluates candidates longer; 0: two thirds of all.",
        low=0,
        algorithm="cma",
    )
    final_phase_episodes: int = setting(
        1, "In the final phase, times as many episodes per candidate.", low=1, high=_MOST_PLAYED, algorithm="cma"
    )
    final_phase_steps: int = setting(
        1, "In the final phase, times as many steps per training episode.", low=1, algorithm="cma"
    )
    whiten_at: str = setting(
        "",
        "Generations, such as 30,60,90, after which the search restarts in whitened input coordinates; 0: whitened "
        "from the start. sigma is then a share of the initial weights, if any.",
        algorithm="cma",
    )
    # Validations are whole episodes on 20 seeds, which cost more than a generation.
    validate_every: int = setting(
        5, "Generations between validations of the distribution's mean.", low=1, algorithm="cma"
    )
    # Real steps or dreamt ones. A fifth of a million leaves five validations in the default training.
    validate_steps: int = setting(200_000, "Training steps between validations of the policy.", low=1, algorithm="ppo")
    # Twenty: six games misled Pong by ten points (2026-11-26); LunarLander's 40 have an interval of 50 (2026-11-29).
    validation_episodes: int = setting(
        20, "Full episodes per validation, on seeds of their own.", low=2, high=MOST_EPISODES
    )
    # A ball's and a lander's speed is in the difference; without M's h nothing else shows it.
    difference: bool = setting(True, "C also receives the difference of z from the step before.", algorithm="ppo")
    previous_action: bool = setting(False, "C also receives the action before.", algorithm="ppo")
    # 128 units take less time than V and the emulator: 118 of 1,600 µs a step (2026-11-25).
    units: int = setting(
        128, "Units of each of the two layers of C, and of its critic.", low=1, high=1024, algorithm="ppo"
    )
    # 39 iterations of 512 dreams with 50 steps; presets have 400,000 to 1,600,000 steps a round.
    max_dream_steps: int = setting(1_000_000, "Steps in the dream with ppo.", low=1, algorithm="ppo")
    num_envs: int | None = setting(
        None,
        f"Environments (none: 16) or dreams (512) that play at a time, a multiple of {GROUP}.",
        low=GROUP,
        high=4096,
        algorithm="ppo",
    )
    rollout_steps: int | None = setting(
        None,
        "Steps that each of them plays between two updates; none: 128, in the dream 50.",
        low=8,
        high=4096,
        algorithm="ppo",
    )
    minibatch: int | None = setting(
        None,
        "Steps that a gradient step learns from; none: 512, in the dream 2,048.",
        low=8,
        high=1 << 20,
        algorithm="ppo",
        newer=True,
    )
    # 0: only Breakout's preset has 0.25, Atari's own share; without it C moved too late (2026-11-28).
    sticky_share: float = setting(
        0.0,
        "Share of dream steps in which the action before is carried out again, as Atari does, so that C does not rely "
        "on an action at the last moment.",
        low=0,
        high=0.99,
        algorithm="ppo",
        newer=True,
    )
    # No sweep is on record. With 1.5e-3 the quick preset's Pong returned -15.1, not -18.7, over few steps (2026-11-26).
    learning_rate: float = setting(
        7e-4, "Adam's step size; it falls to zero with the steps.", low=1e-8, high=1, algorithm="ppo"
    )
    entropy: float | None = setting(
        None, "Weight of the policy's entropy; none: 0.01, in the dream 0.02.", low=0, algorithm="ppo"
    )
    # A horizon of 100 steps. With 0.999 LunarLander returned 219, with 0.99 171 (2026-11-26).
    gamma: float = setting(
        0.99, "Discount of a reward for each step that it lies ahead.", low=0, high=1, algorithm="ppo"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_temperature(self.temperature)
        self._refuse_other_algorithms()
        if self.imitate and not self.init_from:
            raise UsageProblem(
                "--set imitate=true takes the policy of an earlier run; add --init-from, or leave it out."
            )
        if self.policy_gradient and self.in_ == "mixed":
            raise UsageProblem("--algo ppo learns in one place; use --in real or --in dream, or --algo cma.")
        if self.policy_gradient and self.temperature == "auto":
            raise UsageProblem("--temperature auto compares candidates; give a number, or use --algo cma.")
        if self.num_envs is not None and self.num_envs % GROUP:
            raise UsageProblem(f"--set num_envs is {self.num_envs}; expected a multiple of {GROUP}.")
        if self.in_ != "real" and self.memory == "untrained":
            raise UsageProblem(f"--memory untrained cannot dream; leave out --in {self.in_}, or use --memory none.")
        if self.whitened_from_start and self.hidden:
            raise UsageProblem(
                f"--set whiten_at=0 takes a linear C; --set hidden is {self.hidden}, leave one of them out."
            )
        for name, conflicts in (
            ("--init-from", self.init_from is not None),
            ("--set whiten_at", self.whitened_later != ()),
        ):
            if self.restarts > 1 and conflicts:
                raise UsageProblem(
                    f"--set restarts={self.restarts} starts several searches from zero, of which one continues; leave "
                    f"out {name}, or add --set restarts=1."
                )
        for name, conflicts in (
            ("--in dream", self.in_ == "dream"),
            ("--init-from", self.init_from is not None),
            ("--set hidden", self.hidden > 0),
        ):
            if self.whitened_later and conflicts:
                raise UsageProblem(
                    f"--set whiten_at={self.whiten_at} restarts with a linear C, whitened by its inputs in real "
                    f"episodes; leave out {name}, or add --set whiten_at=."
                )

    @property
    def policy_gradient(self) -> bool:
        """Whether C is trained by policy gradient, not evolved."""
        return self.algo == "ppo"

    @property
    def memory_used(self) -> str:
        """The memory that `auto` stands for: trained, untrained or none."""
        automatic = "none" if self.policy_gradient else "trained"
        return automatic if self.memory == "auto" else self.memory

    @property
    def step_limit(self) -> int:
        """Real environment steps; 0: no limit."""
        return self.max_env_steps or (PPO_STEPS if self.policy_gradient and self.in_ == "real" else 0)

    @property
    def places(self) -> int:
        """Environments or dreams that a policy gradient plays at a time."""
        return int(self._by_place("num_envs"))

    @property
    def steps_per_place(self) -> int:
        """Steps that each of them plays between two updates."""
        return int(self._by_place("rollout_steps"))

    @property
    def entropy_weight(self) -> float:
        """The weight of the policy's entropy."""
        return float(self._by_place("entropy"))

    def _by_place(self, name: str) -> float:
        value = getattr(self, name)
        return _BY_PLACE[self.in_][name] if value is None else value

    def result_settings(self) -> dict[str, Any]:
        """As for every group, with the values that `auto` and `none` stand for. A search has a temperature, a
        renderer and a limit of real steps everywhere: fingerprints had them before they were refused where they mean
        nothing."""
        by_place = {name: self._by_place(name) for name in _BY_PLACE["real"]} if self.policy_gradient else {}
        names = () if self.policy_gradient else ("temperature", "render", "max_env_steps")
        searched = {name: getattr(self, name) for name in names}
        return super().result_settings() | by_place | searched | {"memory": self.memory_used}

    @classmethod
    def of_other_algorithms(cls, values: Mapping[str, Any]) -> set[str]:
        """The settings of ppo for cma, and the reverse; for ppo in one place, those of the other; for cma in reality,
        the dream's temperature, and in the dream the limit of real steps, and the renderer, unless real returns choose
        the temperature."""
        own, place = "ppo" if values.get("algo") == "ppo" else "cma", values.get("in_", "real")
        others = {item.name for item in dataclasses.fields(cls) if item.metadata["algorithm"] not in ("", own)}
        if own == "ppo":
            return others | _OF_PLACE[_other(place)]
        if place == "real":
            return others | {"temperature"}
        if place == "mixed":
            return others
        return others | {"max_env_steps"} | ({"render"} if values.get("temperature") != "auto" else set())

    def _refuse_other_algorithms(self) -> None:
        others = self.of_other_algorithms(vars(self))
        for item in dataclasses.fields(self):
            if item.name in others and getattr(self, item.name) != item.default:
                own, needed = f"--algo {self.algo}", f"--algo {item.metadata['algorithm']}"
                if item.metadata["algorithm"] in ("", "ppo" if self.policy_gradient else "cma"):
                    own, needed = f"{own} --in {self.in_}", f"--in {_other(self.in_)}"
                raise UsageProblem(
                    f"{given_as(item)} is {getattr(self, item.name)}, which means nothing with {own}; leave it out, "
                    f"or use {needed}."
                )

    @property
    def whitened(self) -> tuple[int, ...]:
        """The generations after which the search restarts in whitened coordinates; 0: it starts in them."""
        try:
            generations = tuple(int(word) for word in self.whiten_at.split(",") if word.strip())
        except ValueError:
            generations = (-1,)
        if any(one >= other for one, other in zip((-1, *generations), generations, strict=False)):
            raise UsageProblem(
                f"--set whiten_at is {self.whiten_at!r}; expected rising generations separated by commas, such as "
                "30,60,90, or 0."
            )
        return generations

    @property
    def whitened_from_start(self) -> bool:
        """Whether the search starts in whitened coordinates, by the inputs in the episodes of the last dataset."""
        return 0 in self.whitened

    @property
    def whitened_later(self) -> tuple[int, ...]:
        """The generations after which the search restarts in whitened coordinates."""
        return tuple(generation for generation in self.whitened if generation)

    @property
    def early(self) -> int:
        """Generations before the final phase."""
        return min(self.final_phase_after or self.max_generations * 2 // 3, self.max_generations)

    @property
    def restart_ends(self) -> range:
        """The generations at which a candidate search ends, if several run."""
        every = GENERATIONS_PER_RESTART
        return range(every, every * self.restarts + 1, every) if self.restarts > 1 else range(0)


def _other(place: str) -> str:
    """The place of a policy gradient that is not this one."""
    return "dream" if place == "real" else "real"


def check_temperature(text: str) -> None:
    """Raise UsageProblem unless it is `auto` or a number that M can be sampled at."""
    try:
        valid = text == "auto" or 0.01 <= float(text) <= 10.0
    except ValueError:
        valid = False
    if not valid:
        raise UsageProblem(f"--temperature is {text!r}; expected auto or a number from 0.01 to 10.")
