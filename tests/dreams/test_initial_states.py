import shutil
from pathlib import Path

import numpy as np
import pytest

from stages.session import Session
from tests.conftest import SLUG, TINY
from wm.dreams import initial_states
from wm.dreams.initial_states import CONTEXT, early_initial_states, load_latents, sample_initial_states
from wm.episodes.latents import Latents
from wm.errors import MissingInput
from wm.pretrained import load_mdnrnn


def test_initial_states_are_real_latents_with_a_warmed_up_m(chain: Path) -> None:
    folder = chain / "runs" / SLUG
    latents, mdnrnn = Latents.load(folder / "latents"), load_mdnrnn(folder / "mdnrnn", "")
    initial = sample_initial_states(latents, mdnrnn, 0, count=50)
    real = {row.tobytes() for row in latents.means}
    assert all(z.numpy().tobytes() in real for z in initial.z)
    assert initial.state[0].abs().sum() > 0


def test_early_initial_states_follow_the_context_of_every_episode(chain: Path) -> None:
    folder = chain / "runs" / SLUG
    latents = Latents.load(folder / "latents")
    initial = early_initial_states(latents, load_mdnrnn(folder / "mdnrnn", ""))
    context = initial_states.longest_context(latents)
    assert np.array_equal(initial.z.numpy(), latents.means[latents.starts + context])


@pytest.mark.parametrize(("rows", "context"), [(2, 0), (3, 1), (8, 6), (10, CONTEXT), (30, CONTEXT)])
def test_the_context_is_within_the_shortest_episode(rows: int, context: int) -> None:
    ends = np.array([40, 40 + rows, 80 + rows])
    latents = Latents(np.zeros((ends[-1], 2)), None, None, None, ends, ends, ends, None)  # type: ignore[arg-type]
    assert initial_states.longest_context(latents) == context


def test_missing_latents_name_the_command_that_makes_them(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG / "mdnrnn", tmp_path / "mdnrnn")
    with pytest.raises(MissingInput, match="wm train-mdnrnn --env"):
        load_latents(Session(TINY, run=tmp_path).workspace, load_mdnrnn(tmp_path / "mdnrnn", ""))
