"""What a curriculum needs, estimated before it starts: the plan of every stage.

A stage whose inputs exist plans itself; the others are estimated from short measurements on this machine.
"""

import time
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from stages import console, dream, evaluate, train_controller, train_mdnrnn, train_vae
from stages.curriculum.outcome import recorded_outcome
from stages.curriculum.parallel import cores_each
from stages.curriculum.pipeline import STAGES, Pipeline, Step, folder_bytes, pipelines_of
from stages.session import Session
from wm.envs.registry import EnvConfig
from wm.errors import MissingInput, Stopped, WmError
from wm.evaluation.dream_fidelity import most_real_episodes
from wm.evolution.cost import most_steps, search_seconds
from wm.models.controller import Controller
from wm.models.mdnrnn.predictor import Predictor
from wm.models.vae.networks import build
from wm.pipeline.collect import env_config
from wm.pipeline.estimate import Estimate
from wm.pipeline.plan import Plan
from wm.pipeline.stage import UP_TO_DATE
from wm.pipeline.train_controller import controller_config, disk_bytes
from wm.policy_gradient.cost import training_seconds
from wm.pretrained import shape_controller
from wm.rollouts.speed import PlayingSpeed, measure_env
from wm.rollouts.worker_process import playing_memory
from wm.settings import (
    CollectSettings,
    ControllerSettings,
    CurriculumSettings,
    DreamSettings,
    EvaluateSettings,
    MdnRnnSettings,
    VaeSettings,
)
from wm.settings.sources import Sources
from wm.training.mdnrnn import mdnrnn_config, new_mdnrnn

LEFT_BYTES = 150_000_000  # memory that earlier trainings left to the curriculum's process
SERVER_BYTES = 160_000_000  # of the process from which workers are forked: it stays while V and M train
# What the curriculum's process has beside a stage's own estimate, elsewhere LEFT_BYTES. It imports torch at once.
BESIDE = {"collect": 340_000_000, "train-vae": SERVER_BYTES, "train-mdnrnn": SERVER_BYTES + LEFT_BYTES}
BYTES_PER_FRAME = 200  # compressed, of a controller's episodes
DREAMER_PAGES = 4_000_000  # bytes of disk, of what is made from a trained Dreamer
DREAMER_PAGE_SECONDS = (5, 600)  # of each: its episodes may last a minute each
GYMNASIUM_RENDERER = 2.0  # times as long as ours, at most: test episodes are drawn by it


def estimate_curriculum(session: Session, settings: CurriculumSettings, sources: Sources) -> Estimate:
    """The plan of every stage, whether its inputs exist or not."""
    threads, jobs = torch.get_num_threads(), min(settings.jobs, len(settings.names))
    # Threads as each process will have them: times measured with all cores would be too short.
    if jobs > 1:
        session = replace(session, workers=cores_each(session, jobs))
        torch.set_num_threads(session.processes)
    pipelines = pipelines_of(session, settings, sources)
    console.say("measuring this machine's speed to estimate disk, memory and time ...")
    plans, failures = dict[str, list[Plan]](), dict[str, str]()
    for pipeline in pipelines:
        try:
            plans[pipeline.env] = _plans(pipeline)
        except Stopped:
            raise
        except WmError as error:
            # Told at the end with the others' plans, for one unknown environment must not hide them.
            failures[pipeline.env] = str(error)
    torch.set_num_threads(threads)
    used = sum(folder_bytes(path) for pipeline in pipelines for path in pipeline.folders)
    budget = None if session.disk_limit is None else session.disk_limit - used
    return Estimate(plans, failures, budget, settings.keep, jobs, Path.cwd())


def _plans(pipeline: Pipeline) -> list[Plan]:
    """Every step's plan: its own where its inputs exist and stay as they are, else an estimate from what the steps
    before it write."""
    if not pipeline.has_inputs and recorded_outcome(pipeline) is not None:
        return [Plan(step.stage, step.outputs[0], UP_TO_DATE, 0, 0, (0, 0)) for step in pipeline.steps]
    plans: list[Plan] = []
    unmade: _UnmadeInputs | None = None
    estimated: list[tuple[Step, Plan]] = []
    changed = False  # an input of the later steps will be written again
    for step in pipeline.steps:
        plan = None if changed else _own_plan(step)
        if plan is None and pipeline.steps[0].stage == "train-dreamer":
            memory = playing_memory(step.session.processes)
            what = "plays with the trained Dreamer"
            plan = Plan(step.stage, step.outputs[0], what, DREAMER_PAGES, memory, DREAMER_PAGE_SECONDS)
        if plan is None:
            unmade = unmade or _UnmadeInputs.of(pipeline)
            plan = next((plan for other, plan in estimated if _is_alike(step, other)), None)
            rows = sum(plan.rows for plan in plans if plan.stage == "collect")
            plan = replace(plan, target=step.outputs[0]) if plan else unmade.estimate(step, rows)
            estimated.append((step, plan))
        changed = changed or (not plan.idle and step.stage not in ("dream", "evaluate"))
        plans.append(plan if plan.idle else replace(plan, memory=plan.memory + BESIDE.get(plan.stage, LEFT_BYTES)))
    return plans


def _is_alike(step: Step, other: Step) -> bool:
    """Whether two steps are the same stage of two later rounds, with the same settings but for the run they continue:
    only new episodes need new disk space. A round that trains anew continues none."""
    settings, others = (
        {name: bool(value) if name == "init_from" else value for name, value in vars(one.settings).items()}
        for one in (step, other)
    )
    return step.stage == other.stage and min(step.round, other.round) > 1 and settings == others


def _own_plan(step: Step) -> Plan | None:
    """The stage's own plan; None if its inputs do not exist."""
    try:
        return STAGES[step.stage].plan(step.session, step.settings)
    except MissingInput:
        # Not made yet: the caller estimates it from the stages before.
        return None


@dataclass(frozen=True)
class _UnmadeInputs:
    """Stands in for inputs that earlier stages have yet to write: the environment, V's latents, and the speed of an
    episode with V, M and C."""

    speed: PlayingSpeed
    env: EnvConfig
    memory: Predictor

    @classmethod
    def of(cls, pipeline: Pipeline) -> "_UnmadeInputs":
        """Play a little, and time untrained models of the same shape."""
        settings = {step.stage: step.settings for step in reversed(pipeline.steps)}
        collect, vae, mdnrnn = (settings[name] for name in ("collect", "train-vae", "train-mdnrnn"))
        controller = settings["train-controller"]
        assert isinstance(collect, CollectSettings)
        assert isinstance(vae, VaeSettings)
        assert isinstance(mdnrnn, MdnRnnSettings)
        assert isinstance(controller, ControllerSettings)
        env = env_config(pipeline.env, collect)
        # Untrained networks take as long as trained ones.
        speed = measure_env(env, time.monotonic)
        model = build(vae.network, collect.size, speed.frame_shape[2], vae.latent).requires_grad_(False)
        memory = new_mdnrnn(mdnrnn_config(mdnrnn, vae.latent, speed.space), seed=0).requires_grad_(False)
        played = None if controller.memory_used == "none" else memory
        return cls(speed.with_models(model, played, time.monotonic), env, memory)

    def estimate(self, step: Step, rows: int) -> Plan:
        """The plan of a stage that finds its inputs when it starts."""
        settings, session, longest = step.settings, step.session, self.speed.longest
        if isinstance(settings, VaeSettings):
            return train_vae.estimate(session, settings, self.speed.frame_shape, rows)
        if isinstance(settings, MdnRnnSettings):
            return train_mdnrnn.estimate(session, settings, self.memory.latent, self.speed.space, rows)
        if isinstance(settings, CollectSettings):  # of a later round: the controller plays full episodes
            most = settings.episodes * (settings.max_steps or longest)
            plan = self._playing(step, most, f"{settings.episodes} episodes of the controller", 0)
            expected = min(rows, most)
            return replace(plan, rows=expected, disk=expected * BYTES_PER_FRAME)
        if isinstance(settings, ControllerSettings):
            what = train_controller.describe(settings)
            controller = self._controller(settings)
            disk, scratch = disk_bytes(settings, controller)
            plan = self._playing(step, most_steps(settings, longest), what, disk)
            seconds = self._training_seconds(step, settings, controller)
            return replace(plan, scratch=scratch, seconds=seconds, fixed_work=settings.policy_gradient)
        if isinstance(settings, DreamSettings):
            episodes = most_real_episodes(settings.dreams)
            most = episodes * min(settings.max_steps, longest)
            plan = self._playing(step, most, f"a comparison over {episodes} real episodes", dream.BYTES)
            least, longer = dream.PICTURE_SECONDS
            return replace(plan, seconds=(plan.seconds[0] + least, plan.seconds[1] + longer))
        assert isinstance(settings, EvaluateSettings)
        what = f"{settings.episodes} test episodes, and as many of the random policy"
        # Twice, because the random policy plays as many episodes.
        plan = self._playing(step, 2 * settings.episodes * longest, what, evaluate.disk_bytes(settings))
        return replace(plan, seconds=(plan.seconds[0], GYMNASIUM_RENDERER * plan.seconds[1]))

    def _controller(self, settings: ControllerSettings) -> Controller:
        config = controller_config(settings, self.env, self.speed.space, 0)
        return shape_controller(config, self.env, self.speed.space, self.memory.latent, self.memory.hidden)

    def _training_seconds(
        self, step: Step, settings: ControllerSettings, controller: Controller
    ) -> tuple[float, float]:
        memory, speed, workers = self.memory, self.speed, step.session.processes
        if not settings.policy_gradient:
            return search_seconds(time.monotonic, settings, controller, memory, speed, workers)
        return training_seconds(time.monotonic, settings, controller, memory, speed, self.env.action_repeat, workers)

    def _playing(self, step: Step, most: int, what: str, disk: int) -> Plan:
        """A stage whose episodes have at most so many steps."""
        workers = step.session.processes
        return Plan(
            step.stage, step.outputs[0], what, disk, playing_memory(workers), self.speed.duration(most, workers)
        )
