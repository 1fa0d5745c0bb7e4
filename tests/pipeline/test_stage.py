from pathlib import Path
from unittest.mock import Mock

import pytest

from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import Run
from wm.pipeline.session import Session
from wm.pipeline.stage import run_stage
from wm.ranks import FINISHED, TRAIN, PartDone, Ranks
from wm.runtime import Runtime


def test_other_processes_of_torchrun_stay_until_the_first_one_has_published(tmp_path: Path) -> None:
    """After five minutes torchrun would end on their machine, and take along the store of all."""
    words = [TRAIN, FINISHED]
    ranks = Mock(spec=Ranks, leads=False)
    ranks.hear.side_effect = lambda: words.pop(0)
    session = Session("Catch", caller=Runtime(ranks=ranks))
    run = Run(tmp_path, "vae", Recipe("vae", 1, {}, {}))
    with pytest.raises(PartDone):
        run_stage(session, "train-vae", run, (0, ""), str, Mock(side_effect=PartDone))
    assert words == []
