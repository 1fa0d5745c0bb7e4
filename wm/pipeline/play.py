"""A run -> a page in which a person plays inside M's dream; an environment -> episodes that a person played."""

from pathlib import Path

from wm.actions import ActionSpace
from wm.artifacts import manifest
from wm.artifacts.workspace import check_name
from wm.dreams.initial_states import latents_of
from wm.envs.registry import EnvConfig
from wm.episodes.archive import claim, find_dataset
from wm.errors import UsageProblem
from wm.pipeline.collect import SessionRecord
from wm.pipeline.session import Session
from wm.pretrained import is_dreamer, load_vae
from wm.report.play.controls import controls_for, measure_pace
from wm.report.play.human import record_person
from wm.report.play.inputs import describe_models
from wm.report.play.page import Game, write_page
from wm.report.run_summary import PLAY
from wm.report.window import Window, no_window, why_no_window
from wm.rollouts.collection import HUMAN, as_begun, describe
from wm.run_models import load_dreaming, require_run_of


def play_dream(session: Session, agent: str, temperature: float, out: Path | None) -> Path:
    """Write the page and return its path: `out`, or play.html in the run. Raises UsageProblem for an agent that cannot
    dream, and for a page that would be too large; else as the models' loading does."""
    return write_page(out or session.run_path / PLAY, open_game(session, agent, temperature).page())


def open_game(session: Session, agent: str, temperature: float) -> Game:
    """V, M, and C if the run has one, and the episodes they were trained on."""
    folder = session.run_path / check_name("--agent", agent)
    if is_dreamer(folder):
        raise UsageProblem(f"{folder} is a Dreamer, whose dreams are no page; name a controller with --agent.")
    vae, mdnrnn, controller = load_dreaming(session.workspace, agent)
    if controller is None:
        session.runtime.log(f"play {session.env}: {session.run_path} has no controller, so only the person drives")
    dataset = vae.open_episodes(session.data_path)
    latents = latents_of(session.workspace, vae, mdnrnn, dataset, session.runtime, session.device)
    pace = measure_pace(vae.env)
    artifact = None if controller is None else controller.artifact
    models = describe_models(session.run_path, vae.artifact, mdnrnn.artifact, artifact)
    return Game(session.env, vae, mdnrnn, controller, latents, dataset, temperature, *pace, models)


def play_real(session: Session, episodes: int) -> Path:
    """Let a person play the real game, with the frames that the run's V sees, if it has one, and return the dataset's
    path. Raises UsageProblem without a display, and where no episode was played to its end."""
    if reason := why_no_window():
        raise UsageProblem(no_window(reason))
    require_run_of(session.workspace)
    folder, path, runtime = session.run_path / "vae", session.data_path, session.runtime
    trained = (folder / manifest.NAME).is_file()
    env = load_vae(folder, session.workspace.command("train-vae")).env if trained else EnvConfig(session.env)
    collection, recipe = as_begun(path, *describe(env, HUMAN, session.seed, 0, log=runtime.log))
    controls, began = controls_for(session.env, ActionSpace.from_json(recipe["action_space"])), runtime.clock()
    for button in controls.buttons:
        keys = " or ".join(key.strip() or "space" for key in button.keys)
        runtime.log(f"{keys or 'no key'}: {button.label}")
    with claim(path, recipe, session.keep_current, runtime.log) as claimed, Window(session.env) as window:
        budget, pace = session.budget(path), measure_pace(env)[0]
        record = SessionRecord(session, claimed, began)
        try:
            done = record_person(collection, claimed, episodes, budget, window, controls, pace, runtime)
        except BaseException:
            record.interrupted()
            raise
        if done and (dataset := find_dataset(path, recipe)):
            record.write(dataset.collected)
    if not done:
        raise UsageProblem("no episode was played to its end, so nothing was written; play on until one ends.")
    return path
