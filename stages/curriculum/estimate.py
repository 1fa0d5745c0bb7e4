"""What a curriculum will take, told before it starts: short probes on this machine, a line for every stage."""

import heapq
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from stages import console, train_mdnrnn, train_vae
from stages.collect import env_config
from stages.curriculum import finished_before, size_of
from stages.curriculum.parallel import cores_each
from stages.curriculum.pipeline import STAGES, Pipeline, Step, env_names, pipelines_of
from stages.dream import MEANS
from stages.options import Sources
from stages.session import Session
from stages.stage import Plan
from wm.actions import ActionSpace
from wm.envs.registry import EnvConfig
from wm.errors import DiskProblem, MissingInput, WmError
from wm.evaluation.dream_fidelity import REAL_EPISODES
from wm.evolution.fitness import most_steps
from wm.models.mdnrnn.network import MdnRnn
from wm.models.vae.inference import InferenceEncoder
from wm.models.vae.networks import build
from wm.rollouts.players import NUM_ENVS
from wm.rollouts.workers import playing_memory
from wm.settings import (
    CollectSettings,
    ControllerSettings,
    CurriculumSettings,
    DreamSettings,
    EvaluateSettings,
    MdnRnnSettings,
    VaeSettings,
)
from wm.units import format_duration, format_size

PROBED = 200  # steps of the environment
SHORTEST = 0.1  # of the longest episode: what an early candidate may play
HELD = 400_000_000  # what the curriculum's own process holds besides: torch, and what trainings before left to it


@dataclass(frozen=True)
class Estimate:
    """Plans by environment, which environments cannot be played and why, what there is room for, what is kept, and how
    many environments learn at a time."""

    plans: dict[str, list[Plan]]
    unplayable: dict[str, str]
    budget: int | None
    keep: str = "all"
    jobs: int = 1

    @property
    def disk(self) -> int:
        """Bytes that will be added at most, with what the greediest stage needs meanwhile. What is not kept of an
        environment is gone before the next one begins."""
        totals = [sum(plan.disk for plan in plans) for plans in self.plans.values()]
        goes = [sum(self._goes(plan) for plan in plans) for plans in self.plans.values()]
        most, stays = 0, 0
        for place, total in enumerate(totals):
            most = max(most, stays + sum(totals[place : place + self.jobs]))
            stays += total - goes[place]
        return most + self._at_a_time([plan.scratch for plan in plans] for plans in self.plans.values())

    def _goes(self, plan: Plan) -> int:
        data = plan.disk if plan.stage == "collect" and self.keep == "artifacts" else 0
        return data + (plan.latents if self.keep != "all" else 0)

    @property
    def memory(self) -> int:
        """The most that the stages under way need."""
        return self._at_a_time([plan.memory for plan in plans] for plans in self.plans.values())

    def _at_a_time(self, needs: Iterable[list[int]]) -> int:
        """The greatest needs of as many environments as learn at a time, together."""
        return sum(sorted((max(some, default=0) for some in needs), reverse=True)[: self.jobs])

    @property
    def seconds(self) -> tuple[float, float]:
        """The least and the most."""
        ends = [[0.0] * self.jobs, [0.0] * self.jobs]
        for plans in self.plans.values():  # each begins when the first of those before it is done
            for end, spans in zip(ends, zip(*(plan.seconds for plan in plans), strict=True), strict=True):
                heapq.heapreplace(end, end[0] + sum(spans))
        return max(ends[0]), max(ends[1])

    def too_large(self) -> str:
        """Why it would not fit on the disk; empty if it does."""
        free, need = shutil.disk_usage(Path.cwd()).free, format_size(self.disk)
        if self.disk > free:
            return f"all stages need about {need} of disk, and {format_size(free)} are free"
        if self.budget is not None and self.disk > self.budget:
            return f"all stages need about {need} of disk, and --disk-budget leaves {format_size(max(self.budget, 0))}"
        return ""

    def objections(self) -> list[str]:
        """Whatever speaks against it: the disk, packages that are missing, environments that break, little memory."""
        found = [f"{env} will fail: {why}" for env, why in self.unplayable.items()]
        if self.too_large():
            found.append(self.too_large())
        memory = psutil.virtual_memory().available
        if self.memory > memory:
            found.append(
                f"a stage needs about {format_size(self.memory)} of memory, and {format_size(memory)} are free"
            )
        return found

    def require(self) -> None:
        """Raise DiskProblem if it would not fit on the disk."""
        if why := self.too_large():
            raise DiskProblem(
                f"{why}; free some space, raise --disk-budget, take fewer environments, or give --keep artifacts."
            )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "environments": {env: [plan.as_json() for plan in plans] for env, plans in self.plans.items()},
            "disk_bytes": self.disk,
            "memory_bytes": self.memory,
            "seconds": list(self.seconds),
            "objections": self.objections(),
        }


def estimate(session: Session, settings: CurriculumSettings, sources: Sources) -> Estimate:
    """The plan of every stage, whether its inputs are there or not."""
    threads, jobs = torch.get_num_threads(), min(settings.jobs, len(env_names(settings)))
    if jobs > 1:
        session = replace(session, workers=cores_each(session, jobs))
        torch.set_num_threads(session.processes)
    chains = pipelines_of(session, settings, sources)
    plans, unplayable = dict[str, list[Plan]](), dict[str, str]()
    for chain in chains:
        try:
            plans[chain.env] = _plans(chain)
        except WmError as error:
            unplayable[chain.env] = str(error)
    torch.set_num_threads(threads)
    used = sum(size_of(path) for chain in chains for path in chain.places)
    room = None if session.disk_limit is None else session.disk_limit - used
    return Estimate(plans, unplayable, room, settings.keep, jobs)


def table_of(foreseen: Estimate) -> str:
    """The plan for people, and what speaks against it."""
    rows = [
        [env, stage, plan.what, _size(plan.disk), _size(plan.memory), _span(plan.seconds)]
        for env, plans in foreseen.plans.items()
        for stage, plan in zip(_with_rounds(plans), plans, strict=True)
    ]
    rows.append(["all", "", "", _size(foreseen.disk), _size(foreseen.memory), _span(foreseen.seconds)])
    lines = [console.table(["environment", "stage", "what", "disk", "memory", "time"], rows)]
    lines.append("estimates from short probes on this machine; how long C takes depends on how long its episodes last")
    lines += [f"warning: {objection}" for objection in foreseen.objections()]
    return "\n".join(lines)


def _with_rounds(plans: list[Plan]) -> list[str]:
    """The stages' names, with the round they are in if it is not the first: each begins with collecting."""
    names, number = list[str](), 0
    for plan in plans:
        number += plan.stage == "collect"
        names.append(plan.stage + (f", round {number}" if number > 1 else ""))
    return names


def _size(size: int) -> str:
    return format_size(size) if size else "-"


def _span(seconds: tuple[float, float]) -> str:
    low, high = (format_duration(value) for value in seconds)
    return ("-" if high == "0 s" else low) if low == high else f"{low} to {high}"


def _plans(chain: Pipeline) -> list[Plan]:
    """Every step's plan: its own where its inputs are there and stay as they are, else one for what the steps before
    it will leave."""
    if finished_before(chain) is not None:
        return [Plan(step.stage, step.places[0], "up to date", 0, 0, (0, 0)) for step in chain.steps]
    found: list[Plan] = []
    world: _World | None = None
    changes = False  # something that later steps take will be made anew
    for step in chain.steps:
        plan = None if changes else _own_plan(step)
        if plan is None and chain.steps[0].stage == "train-dreamer":
            memory = playing_memory(step.session.processes)
            plan = Plan(step.stage, step.places[0], "plays with what was learned", 4_000_000, memory, (5, 600))
        if plan is None:
            world = world or _World.of(chain)
            rows = sum(plan.rows for plan in found if plan.stage == "collect")
            plan = world.estimate(step, rows)
        changes = changes or (not plan.idle and step.stage not in ("dream", "evaluate"))
        idle = plan.idle or plan.stage == "train-vae"
        found.append(plan if idle else replace(plan, memory=plan.memory + HELD))
    return found


def _own_plan(step: Step) -> Plan | None:
    """What the stage itself says; None if its inputs are not there."""
    try:
        return STAGES[step.stage].plan(step.session, step.settings)
    except MissingInput:
        return None


@dataclass(frozen=True)
class _World:
    """What is known of an environment before anything is made: its frames, its actions, and what a step takes."""

    shape: tuple[int, ...]
    width: int
    latent: int
    longest: int
    seconds: float

    @classmethod
    def of(cls, chain: Pipeline) -> "_World":
        """Play a little, and time V and M on the way C will use them."""
        settings = {step.stage: step.settings for step in reversed(chain.steps)}
        collect, vae, mdnrnn = (settings[name] for name in ("collect", "train-vae", "train-mdnrnn"))
        assert isinstance(collect, CollectSettings)
        assert isinstance(vae, VaeSettings)
        assert isinstance(mdnrnn, MdnRnnSettings)
        env = env_config(chain.env, collect).make()
        space = ActionSpace.of(env.action_space)
        frame, _ = env.reset(seed=0)
        env.action_space.seed(0)
        began = time.monotonic()
        for _ in range(PROBED):
            frame, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if terminated or truncated:
                frame, _ = env.reset()
        stepping = (time.monotonic() - began) / PROBED
        limit = env.spec.max_episode_steps if env.spec is not None else None
        env.close()
        model = build(vae.network, collect.size, frame.shape[2], vae.latent).requires_grad_(False)
        memory = MdnRnn(vae.latent, space.width, mdnrnn.hidden, mdnrnn.mixtures, mdnrnn.end_weight)
        frames = torch.from_numpy(np.repeat(frame[None], NUM_ENVS, 0))
        seen = torch.zeros(NUM_ENVS, 1, vae.latent + space.width)
        eye = InferenceEncoder(model, NUM_ENVS)
        with torch.inference_mode():
            seeing = _timed(lambda: eye.see(frames)) / NUM_ENVS
            remembering = _timed(lambda: memory.lstm(seen)) / NUM_ENVS
        longest = -(-(limit or 10 * EnvConfig(chain.env).random_steps) // collect.action_repeat)
        return cls(frame.shape, space.width, vae.latent, longest, stepping + seeing + remembering)

    def estimate(self, step: Step, rows: int) -> Plan:
        """The plan of a stage whose inputs will be there in time."""
        settings, session = step.settings, step.session
        if isinstance(settings, VaeSettings):
            return train_vae.estimate(session, settings, self.shape, rows)
        if isinstance(settings, MdnRnnSettings):
            return train_mdnrnn.estimate(session, settings, self.latent, self.width, rows)
        if isinstance(settings, CollectSettings):  # of a later round: the controller plays, as long as it may
            most = float(settings.episodes * (settings.max_steps or self.longest))
            steps = (min(rows, most), most)
            plan = self._playing(step, steps, f"{settings.episodes} episodes of the controller", 0)
            return replace(plan, rows=round(steps[0]), disk=round(steps[0] * 200))
        if isinstance(settings, ControllerSettings):
            what = f"{settings.max_generations} generations of {settings.popsize} ({settings.in_})"
            return self._playing(step, _search_steps(settings, self.longest), what, 200_000)
        if isinstance(settings, DreamSettings):
            episodes = MEANS * REAL_EPISODES + settings.dreams
            most = episodes * min(settings.max_steps, self.longest)
            plan = self._playing(step, (SHORTEST * most, float(most)), f"a comparison over {episodes} real episodes", 0)
            seconds = (plan.seconds[0] + 5, plan.seconds[1] + 30)
            return replace(plan, disk=2_000_000, seconds=seconds)
        assert isinstance(settings, EvaluateSettings)
        most = 2 * settings.episodes * self.longest
        what = f"{settings.episodes} test episodes, and as many of the random policy"
        return self._playing(step, (SHORTEST * most, 2.0 * most), what, 10_000)

    def _playing(self, step: Step, steps: tuple[float, float], what: str, disk: int) -> Plan:
        workers = step.session.processes
        low, high = (count * self.seconds / workers for count in steps)
        return Plan(step.stage, step.places[0], what, disk, playing_memory(workers), (low, high))


def _search_steps(settings: ControllerSettings, longest: int) -> tuple[float, float]:
    """The least and the most real steps of a search."""
    total = most_steps(settings, longest)
    if settings.max_env_steps:
        total = min(total, settings.max_env_steps)
    return SHORTEST * total, float(total)


def _timed(call: Callable[[], Any], times: int = 20) -> float:
    call()
    began = time.monotonic()
    for _ in range(times):
        call()
    return (time.monotonic() - began) / times
