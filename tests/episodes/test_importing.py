import contextlib
import io
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.conftest import TINY
from wm.actions import ActionSpace
from wm.artifacts.disk import DiskBudget
from wm.envs.imported_frames import ImportedFrames
from wm.envs.registry import EnvConfig
from wm.envs.resize import AreaResize
from wm.episodes import new_datasets, recordings
from wm.episodes.dataset import Dataset
from wm.episodes.importing import Import
from wm.episodes.schema import Episode
from wm.errors import BadData, MissingInput, UsageProblem, WmError
from wm.seeding import episode_seed, split_of

CONFIG = EnvConfig(TINY, size=32)
BOX = ActionSpace(low=(-1.0, 0.0), high=(1.0, 1.0))
STEPS = 5


def arrays(number: int = 0, **changes: Any) -> dict[str, NDArray[Any]]:
    """What a valid npz of an episode of Tiny has, with some of it changed; None: without it."""
    random = np.random.default_rng(number)
    columns = {
        "frames": random.integers(0, 256, (STEPS + 1, 48, 40, 3), np.uint8),
        "actions": random.integers(0, 3, STEPS),
        "rewards": random.normal(size=STEPS),
        "terminated": True,
    }
    return {name: np.asarray(value) for name, value in (columns | changes).items() if value is not None}


def saved(path: Path, **columns: Any) -> Path:
    np.savez_compressed(path, **columns)
    return path


def imported(folder: Path, *sources: Path, config: EnvConfig = CONFIG, space: ActionSpace | None = None) -> Dataset:
    recipe = config.as_recipe(space or config.actions)
    new = Import(sources, recipe, "human", ImportedFrames(config))
    path = folder / "new.zarr"
    new_datasets.write(path, new, DiskBudget(path), dict, lambda done: None)
    return Dataset.open(path)


def only_episode(dataset: Dataset) -> Episode:
    (episode,) = dataset.episodes_of(dataset.parts[0])
    return episode


def test_an_npz_becomes_an_episode_with_the_frames_that_collecting_would_store(tmp_path: Path) -> None:
    columns = arrays()
    episode = only_episode(dataset := imported(tmp_path, saved(tmp_path / "a.npz", **columns)))
    shrink = AreaResize(48, 40, 3, 32)
    assert np.array_equal(episode.frames, [shrink(frame) for frame in columns["frames"]])
    assert np.array_equal(episode.actions, [*columns["actions"], 0])
    assert np.array_equal(episode.rewards, np.float32([*columns["rewards"], 0]))
    assert (episode.terminated, episode.truncated) == (True, False)
    assert dataset.recipe["policy"] == "human"
    assert dataset.recipe["origin"]["operation"] == "import"


def test_an_unused_last_row_is_dropped_and_an_episode_that_did_not_end_is_truncated(tmp_path: Path) -> None:
    columns = arrays(actions=[0, 1, 2, 0, 1, 2], rewards=[1, 2, 3, 4, 5, 6], terminated=False)
    episode = only_episode(imported(tmp_path, saved(tmp_path / "a.npz", **columns)))
    assert episode.actions.tolist() == [0, 1, 2, 0, 1, 0]
    assert episode.rewards.tolist() == [1, 2, 3, 4, 5, 0]
    assert (episode.terminated, episode.truncated) == (False, True)


def test_the_seed_is_the_files_or_follows_from_its_content(tmp_path: Path) -> None:
    files = [saved(tmp_path / f"{k}.npz", **arrays(k)) for k in range(3)]
    seeds = imported(tmp_path / "a", *files).table["seed"].tolist()
    assert len(set(seeds)) == 3
    assert {split_of(seed) for seed in seeds} == {"train"}
    assert imported(tmp_path / "b", *files[1:]).table["seed"].tolist() == seeds[1:]
    given = saved(tmp_path / "given.npz", **arrays(seed=7))
    assert imported(tmp_path / "c", given).table["seed"].tolist() == [7]


@pytest.mark.parametrize("split", ["validation", "test"])
def test_an_episode_that_agents_are_judged_by_is_refused(tmp_path: Path, split: str) -> None:
    file = saved(tmp_path / "a.npz", **arrays(seed=episode_seed(split, 0, 1)))
    with pytest.raises(BadData, match=f"of a {split} episode"):
        imported(tmp_path, file)


def test_gray_and_motion_are_made_of_the_pictures(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npz", **arrays(frames=np.full((STEPS + 1, 40, 40), 90, np.uint8)))
    gray = only_episode(imported(tmp_path / "a", file, config=EnvConfig(TINY, size=32, gray=True)))
    assert gray.frames.shape == (STEPS + 1, 32, 32, 1)
    assert (gray.frames == 90).all()
    motion = only_episode(imported(tmp_path / "b", file, config=EnvConfig(TINY, size=32, observation="motion")))
    assert (motion.frames == 128).all()
    with pytest.raises(UsageProblem, match="leave out --gray"):
        ImportedFrames(EnvConfig(TINY, gray=True, observation="motion"))


def test_continuous_actions_keep_to_their_box(tmp_path: Path) -> None:
    actions = np.float64([[-1, 0], [1, 1], [0.5, 0.25], [0, 0], [1 + 1e-7, 0]])
    episode = only_episode(imported(tmp_path, saved(tmp_path / "a.npz", **arrays(actions=actions)), space=BOX))
    assert episode.actions.dtype == np.float32
    assert episode.actions.tolist() == [[-1, 0], [1, 1], [0.5, 0.25], [0, 0], [1, 0], [0, 0]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"frames": None}, "has no 'frames' but actions, rewards, terminated"),
        ({"actions": None}, "has no 'actions'"),
        ({"terminated": None}, "has no 'terminated'"),
        ({"frames": np.zeros((6, 40, 40, 3), np.float32)}, "type float32; expected"),
        ({"frames": np.zeros((6, 40, 40, 5), np.uint8)}, r"a.npz frame 0 has the shape \(40, 40, 5\)"),
        ({"frames": np.zeros((6, 40), np.uint8)}, "has frames of shape"),
        ({"frames": np.zeros((6, 20, 40, 3), np.uint8)}, "40x20 pixels; expected 32 a side"),
        ({"frames": np.zeros((1, 40, 40, 3), np.uint8), "actions": np.zeros(0, int)}, "has 1 frames"),
        ({"frames": np.zeros((6, 40, 40, 3), np.uint8, order="F")}, "Fortran order"),
        ({"actions": [0, 1, 2]}, "has 3 actions for 6 frames; expected 5"),
        ({"actions": [0, 1, 3, 0, 0]}, "the action 3 at step 2 but .* takes 3 discrete actions"),
        ({"actions": [0, -1, 0, 0, 0]}, "the action -1 at step 1"),
        ({"actions": np.zeros(5)}, "type float64 but .* takes 3 discrete actions"),
        ({"actions": np.zeros((5, 2), int)}, r"actions of shape \(5, 2\)"),
        ({"actions": "left"}, "actions of shape"),
        ({"rewards": [1, 2, 3, np.nan, 5]}, "the reward nan at step 3"),
        ({"rewards": [1, 2, 3, 4, 1e300]}, r"the reward 1e\+300 at step 4"),
        ({"rewards": np.zeros((5, 2))}, "has rewards of shape"),
        ({"rewards": [1, 2]}, "has 2 rewards for 6 frames"),
        ({"terminated": [True, False]}, "expected one bool"),
        ({"terminated": 1}, "expected one bool"),
        ({"seed": 1.5}, "expected one integer"),
    ],
)
def test_what_does_not_fit_is_one_sentence_and_nothing_is_written(
    tmp_path: Path, change: dict[str, Any], sentence: str
) -> None:
    file = saved(tmp_path / "a.npz", **arrays(**change))
    with pytest.raises(BadData, match=sentence) as caught:
        imported(tmp_path / "data", file)
    assert str(caught.value).startswith(str(file))
    assert not (tmp_path / "data").exists()


def test_a_box_is_refused_outside_its_bounds_and_where_it_is_not_a_number(tmp_path: Path) -> None:
    for number, action in enumerate(([0, -0.5], [0, np.nan])):
        actions = np.zeros((STEPS, 2))
        actions[2] = action
        with pytest.raises(BadData, match=r"at step 2 but .* takes actions of 2 dimensions"):
            imported(tmp_path, saved(tmp_path / f"{number}.npz", **arrays(actions=actions)), space=BOX)


def test_the_same_episode_is_refused_the_second_time(tmp_path: Path) -> None:
    files = [saved(tmp_path / f"{name}.npz", **arrays()) for name in "ab"]
    with pytest.raises(BadData, match=r"b\.npz has the same episode as .*a\.npz"):
        imported(tmp_path / "data", *files)
    with pytest.raises(BadData, match=r"a\.npz has the same episode as .*a\.npz"):
        imported(tmp_path / "data", files[0], files[0])


def test_a_bad_file_after_good_ones_leaves_nothing(tmp_path: Path) -> None:
    good = [saved(tmp_path / f"{k:02}.npz", **arrays(k)) for k in range(20)]
    bad = saved(tmp_path / "bad.npz", **arrays(99, rewards=[np.inf] * STEPS))
    with pytest.raises(
        BadData, match=r"bad\.npz has the reward inf at step 0; expected finite numbers of at most 1e\+15"
    ):
        imported(tmp_path / "data", *good, bad)
    assert not list((tmp_path / "data").iterdir())


def forged(path: Path, header: bytes) -> Path:
    """An npz whose frames have this header and little else."""
    buffer = io.BytesIO()
    buffer.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("frames.npy", buffer.getvalue())
        for name, value in arrays().items():
            if name != "frames":
                array = io.BytesIO()
                np.save(array, value)
                archive.writestr(f"{name}.npy", array.getvalue())
    return path


def test_hostile_files_are_refused_before_they_cost_anything(tmp_path: Path) -> None:
    def header(shape: str, kind: str = "|u1") -> bytes:
        return f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()

    files = {
        "many rows": (forged(tmp_path / "rows.npz", header("(1000000000, 64, 64, 3)")), "expected at most 131,072"),
        "vast picture": (forged(tmp_path / "vast.npz", header("(6, 900000, 900000, 3)")), "has frames of shape"),
        "negative picture": (forged(tmp_path / "below.npz", header("(4, -64, -64, 3)")), "is no npz file"),
        "negative rows": (forged(tmp_path / "under.npz", header("(-3, 64, 64, 3)")), r"shape \(-3, 64, 64, 3\)"),
        "large picture": (forged(tmp_path / "side.npz", header("(6, 64, 64, 3)")), "frames ends early"),
        "objects": (forged(tmp_path / "o.npz", header("(6, 64, 64, 3)", "|O")), "type object"),
        "no header": (forged(tmp_path / "n.npz", b"spam\n"), "is no npz file"),
    }
    (tmp_path / "text.npz").write_text("no archive")
    files["text"] = (tmp_path / "text.npz", "is no npz file")
    torn = saved(tmp_path / "torn.npz", **arrays())
    torn.write_bytes(torn.read_bytes()[:-200])
    files["torn"] = (torn, "is no npz file")
    (tmp_path / "link.npz").symlink_to(torn)
    files["link"] = (tmp_path / "link.npz", "link")
    for file, sentence in files.values():
        with pytest.raises(WmError, match=sentence):
            imported(tmp_path / "data", file)
    assert not (tmp_path / "data").exists()


def test_a_damaged_file_is_one_sentence_wherever_the_damage_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays(frames=np.zeros((2, 32, 32, 3), np.uint8)))  # type: ignore[arg-type]
    whole, damaged = (tmp_path / "a.npz").read_bytes(), tmp_path / "b.npz"
    for place in (*range(20, 140), *range(len(whole) - 400, len(whole), 7)):  # of the first header and the directory
        for value in (255, whole[place] ^ 1):
            damaged.write_bytes(whole[:place] + bytes([value]) + whole[place + 1 :])
            with contextlib.suppress(WmError):
                for recording in recordings.read([damaged])[1]:
                    list(recording.frames)


def test_what_unpacks_to_much_takes_little_memory(tmp_path: Path) -> None:
    many = saved(tmp_path / "many.npz", **arrays(frames=np.zeros((3001, 40, 32, 3), np.uint8), actions=[0] * 3000))
    header = tmp_path / "header.npz"
    with zipfile.ZipFile(header, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("frames.npy", b"\x93NUMPY\x02\x00" + (1 << 25).to_bytes(4, "little") + bytes(1 << 25))
    tracemalloc.start()
    with pytest.raises(BadData, match="rewards for 3001 frames; expected 3000"):
        imported(tmp_path / "data", many)
    with pytest.raises(BadData, match="is no npz file"):
        imported(tmp_path / "data", header)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_flipped_bit_is_found_by_the_files_checksum(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **arrays())  # type: ignore[arg-type]
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[2000] ^= 1
    (tmp_path / "a.npz").write_bytes(bytes(data))
    with pytest.raises(BadData, match="CRC"):
        imported(tmp_path / "data", tmp_path / "a.npz")


def test_sources_are_of_one_kind_and_exist(tmp_path: Path) -> None:
    file = saved(tmp_path / "a.npz", **arrays())
    (tmp_path / "a.mp4").touch()
    (tmp_path / "b.mp4").touch()
    (tmp_path / "folder").mkdir()
    assert recordings.extra_of([file]) == ""
    assert recordings.extra_of([tmp_path / "a.mp4"]) == "mp4"
    for sources, sentence in (
        ([file, tmp_path / "a.mp4"], "several kinds"),
        ([tmp_path / "folder"], "is a folder without"),
        ([Path("a.gif")], "does not exist"),
        ([Path(__file__)], "cannot be imported"),
    ):
        with pytest.raises((UsageProblem, MissingInput), match=sentence):
            recordings.extra_of(sources)
    with pytest.raises(MissingInput, match=r"has no b\.npz beside it"):
        recordings.digest_of([tmp_path / "b.mp4"])
