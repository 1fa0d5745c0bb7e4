"""`wm evaluate`: scores on test episodes, in the unmodified environment."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from stages import console
from stages.session import Session
from wm.artifacts import durable
from wm.artifacts.runs import Artifact, Builder, Run
from wm.artifacts.workspace import NO_STICKY, check_name
from wm.errors import UsageProblem
from wm.evaluation.score import EvaluatedAgent, open_agent, random_agent, score_agent
from wm.pipeline.plan import Plan, plan_stage
from wm.pipeline.stage import Result, run_stage
from wm.report.conclusions import score_conclusion
from wm.report.recording import VIDEO_BYTES, record_videos, show_episode
from wm.rollouts.players import RandomSpec, evaluation_jobs
from wm.rollouts.speed import measure_env
from wm.rollouts.worker_process import playing_memory
from wm.settings import EvaluateSettings
from wm.stats import Score, with_interval

# Raised by each change after which the same agent has other returns.
RECIPE = 2
SCORES = "score.json"
SCORE_BYTES = 1_000_000  # of disk, at most: the score of an agent, its returns, and the log of its episodes


def _open(session: Session, settings: EvaluateSettings) -> EvaluatedAgent:
    """The agent. Raises UsageProblem for one that is no name, and for pictures of the random policy: it sees none."""
    name = check_name("--agent", settings.agent)
    agent = open_agent(session.workspace, name, settings.max_steps, settings.sticky_actions)
    if agent.kind == "random" and (settings.record_video or settings.visualize):
        option = "--record-video" if settings.record_video else "--visualize"
        raise UsageProblem(f"{option} means nothing to --agent random, which sees no frames; leave one of them out.")
    return agent


def _run(session: Session, settings: EvaluateSettings, agent: EvaluatedAgent) -> Run:
    if agent.kind == "random":
        name = "random"
        env: dict[str, Any] = {"env": agent.env.name, "action_space": agent.env.action_space}
        if agent.env.max_steps:
            env["max_steps"] = agent.env.max_steps * agent.env.action_repeat  # the random policy repeats nothing
        if not agent.env.sticky:
            env["sticky_actions"] = False
        recipe: dict[str, Any] = {"episodes": settings.episodes, "agent": "random", **env}
    else:
        name, recipe = settings.agent, settings.result_settings()
    name = f"evaluation/{name}{'' if agent.env.sticky else NO_STICKY}"
    code = agent.env.code
    recipe, inputs = {**recipe, "packages": code.packages}, {**agent.inputs, **code.sources}
    return session.make_run(name, "evaluation", RECIPE, recipe, inputs, seeded=False)


def disk_bytes(settings: EvaluateSettings) -> int:
    """Bytes of disk that an agent's score, the random policy's, and the videos take."""
    return 2 * SCORE_BYTES + settings.record_video * VIDEO_BYTES


def plan(session: Session, settings: EvaluateSettings) -> Plan:
    """What `evaluate` would do."""
    agent = _open(session, settings)
    run = _run(session, settings, agent)

    def estimate() -> Plan:
        workers = session.processes
        speed = measure_env(agent.spec.env, session.runtime.clock)
        what = f"{settings.episodes} test episodes, and as many of the random policy"
        seconds = speed.duration(2 * settings.episodes * speed.longest, workers)
        return Plan("evaluate", run.folder, what, disk_bytes(settings), playing_memory(workers), seconds)

    return plan_stage("evaluate", run, estimate)


def evaluate(session: Session, settings: EvaluateSettings) -> Result:
    """Score an agent, and the random policy, on test episodes that are used for nothing else. Show and record them if
    the settings ask for it."""
    agent = _open(session, settings)
    if isinstance(agent.spec, RandomSpec):
        result = _score(session, settings, agent)
        return replace(result, table=_table(result.metrics))
    if settings.visualize:
        show_episode(session.runtime, session.env, agent.spec, evaluation_jobs(1)[0])
    baseline = _score(session, settings, random_agent(agent.env))
    random_score = {name: baseline.metrics[name] for name in ("mean", "ci95", "episodes")}
    result = _score(session, settings, agent, random_score)
    videos: list[Path] = []
    if settings.record_video:
        folder = session.run_path / "videos" / settings.agent
        session.budget(folder).require(settings.record_video * VIDEO_BYTES, 0, f"{settings.record_video} videos")
        videos = record_videos(session.runtime, folder, agent.spec, evaluation_jobs(settings.record_video))
    seconds = result.seconds + baseline.seconds
    return replace(result, table=_table(result.metrics), pictures=result.pictures + videos, seconds=seconds)


def _score(
    session: Session, settings: EvaluateSettings, agent: EvaluatedAgent, baseline: dict[str, Any] | None = None
) -> Result:
    def work(builder: Builder) -> dict[str, Any]:
        label = f"evaluate {session.env} ({agent.kind})"
        metrics = score_agent(session.runtime, agent, session.env, settings.episodes, label, builder.folder)
        metrics |= {"random": baseline} if baseline else {}
        durable.write_json(builder.folder / SCORES, metrics)
        return metrics

    env = None if agent.kind == "random" else agent.env
    run = _run(session, settings, agent)
    return run_stage(session, "evaluate", run, (SCORE_BYTES, "evaluation"), _summary, work, env)


def _table(metrics: dict[str, Any]) -> str:
    rows = [(metrics["agent"], metrics)]
    if "random" in metrics:
        rows.append(("random", metrics["random"]))
    preview = ", preview" if metrics["preview"] else ""
    cells = []
    for name, row in rows:
        mean, half = with_interval(row["mean"], row["ci95"], least=2).split(" ± ")
        cells.append([name, mean, f"± {half}", f"{row['episodes']}{preview}"])
    text = console.table(["agent", "mean return", "95 % interval", "test episodes"], cells)
    notes = [f"verdict: {score_conclusion(metrics)}"] if "random" in metrics else []
    notes.append(f"protocol: {metrics['protocol']}")
    return "\n".join([text, *(console.wrap(note, "") for note in notes)])


def _summary(artifact: Artifact) -> str:
    metrics = artifact.metrics
    score = Score(metrics["mean"], metrics["ci95"], metrics["episodes"])
    text = f"return {score} over {score.episodes} test episodes"
    if "random" in metrics:
        random = Score(*(metrics["random"][name] for name in ("mean", "ci95", "episodes")))
        text += f"; random {random}: {score_conclusion(metrics)}"
    return text + (f" (preview, n={score.episodes})" if metrics["preview"] else "")
