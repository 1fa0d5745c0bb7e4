import time
from pathlib import Path

import numpy as np

from stages.candidates import Evaluation
from stages.players import Player
from stages.session import Session
from stages.trained import load_pair
from tests.conftest import SLUG, TINY
from wm.settings import ControllerSettings
from wm.workers import Workers


def make(chain: Path, **settings: object) -> tuple[Evaluation, int]:
    session = Session(TINY, run=chain / "runs" / SLUG)
    vae, mdnrnn = load_pair(session)
    player = Player(vae.env, vae.artifact.folder, mdnrnn.artifact.folder, "argmax", "")
    evaluation = Evaluation(
        session,
        ControllerSettings(**settings),
        player,
        Workers(0, session.stop.raise_if_stopped, time.monotonic),
        mdnrnn,  # type: ignore[arg-type]
    )
    return evaluation, 3 * (vae.model.latent + mdnrnn.model.hidden + 1)


def test_candidates_of_a_generation_share_their_episodes(chain: Path) -> None:
    evaluation, parameters = make(chain, episodes_per_eval=2)
    same = np.repeat(np.random.default_rng(0).normal(size=(1, parameters)), 4, axis=0).astype(np.float32)
    returns, steps = evaluation.generation(same, 0)
    assert len(set(returns)) == 1
    assert steps > 0
    later = {evaluation.generation(same, generation)[0][0] for generation in range(1, 5)}
    assert later != {returns[0]}  # other generations, other episodes


def test_validation_plays_the_same_episodes_every_time(chain: Path) -> None:
    evaluation, parameters = make(chain, validation_episodes=3)
    mean = np.zeros(parameters, np.float32)
    one, two = evaluation.validation(mean)[0], evaluation.validation(mean)[0]
    assert one.tolist() == two.tolist()
    assert len(one) == 3


def test_a_dreamed_generation_costs_no_real_steps(chain: Path) -> None:
    evaluation, parameters = make(chain, in_="dream", max_steps=10)
    returns, steps = evaluation.generation(np.zeros((4, parameters), np.float32), 0)
    assert steps == 0
    assert np.isfinite(returns).all()
