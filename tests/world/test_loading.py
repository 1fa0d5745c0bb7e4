"""`import wm` is light, `wm.load` checks what the commands check."""

import json
import pickle
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest

import wm
from tests.conftest import METRICS, PROVENANCE, SLUG, arguments, environment
from tests.conftest import run as run_command
from wm.artifacts.recipe import Recipe
from wm.artifacts.runs import Run
from wm.artifacts.workspace import Workspace
from wm.envs.registry import EnvConfig
from wm.errors import BadData, MissingInput, RecipeMismatch, UsageProblem
from wm.models.vae.config import VaeConfig
from wm.pretrained import save_vae


def python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def copied(run: Path, tmp_path: Path, *without: str) -> Path:
    """A copy of the run in which some artifacts are missing."""
    return Path(shutil.copytree(run, tmp_path / "runs" / SLUG, ignore=lambda _, names: set(names) & set(without)))


def test_the_package_imports_neither_torch_nor_numpy_until_a_name_is_used() -> None:
    heavy = "{'torch', 'numpy', 'gymnasium'} & set(sys.modules)"
    assert python(f"import sys, wm; wm.Runtime, wm.WmError; print(*{heavy})") == ""


def test_every_public_name_exists_and_has_a_type() -> None:
    stub = Path(wm.__file__).with_suffix(".pyi").read_text()
    assert set(wm.__all__) == {line.split(" as ")[1] for line in stub.splitlines() if " as " in line}
    for name in wm.__all__:
        assert getattr(wm, name).__doc__
        assert name in dir(wm)
    with pytest.raises(AttributeError, match="has no attribute 'lod'"):
        wm.lod  # type: ignore[attr-defined] # noqa: B018


def test_a_run_without_c_is_a_world_that_cannot_act(run: Path, tmp_path: Path, world: wm.World) -> None:
    folder = copied(run, tmp_path, "controller")
    loaded = wm.load(folder)
    assert loaded.controller is None
    assert repr(loaded).endswith("agent=None)")
    frame = world.episode(0).frames[0]
    assert (loaded.encode(frame) == world.encode(frame)).all()
    for use in (lambda: loaded.act(frame), loaded.evaluate):
        with pytest.raises(MissingInput, match=r"has no C; run `wm train-controller --env tests.tiny:Tiny-v0 --run "):
            use()


def test_what_is_not_trained_names_its_command(run: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match=r"runs/Pnog is not a folder; expected a run, such as runs/CartPole\."):
        wm.load("runs/Pnog")
    with pytest.raises(MissingInput, match="vae does not exist or is not finished; expected a finished vae"):
        wm.load(tmp_path)
    with pytest.raises(MissingInput, match=r"run `wm train-mdnrnn --env tests.tiny:Tiny-v0 --run "):
        wm.load(copied(run, tmp_path, "mdnrnn"))
    with pytest.raises(MissingInput, match=r"train-controller --env tests.tiny:Tiny-v0 --run .* --name other` first"):
        wm.load(run, agent="other")
    with pytest.raises(UsageProblem, match="agent is 'dreamer', a Dreamer, which has no V, M and C"):
        wm.load(run, agent="dreamer")
    with pytest.raises(UsageProblem, match="data is 's3://lab/d'; in Python it is a folder, only commands"):
        wm.load(run, data="s3://lab/d")
    with pytest.raises(UsageProblem, match="data is empty"):
        wm.load(run, data=[])


def test_an_artifact_is_no_run(run: Path) -> None:
    with pytest.raises(UsageProblem, match=rf"vae is an artifact; expected the run that it belongs to, {run}\.$"):
        wm.load(run / "vae")


def test_a_world_is_where_it_was_loaded_wherever_the_program_goes(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Latents and episodes are read when they are first used."""
    monkeypatch.chdir(run.parent.parent)
    loaded = wm.load(f"runs/{SLUG}")
    given = wm.load(f"runs/{SLUG}", data=f"data/{SLUG}.zarr")
    monkeypatch.chdir(tmp_path)
    assert loaded.env().reset(seed=0)[0].shape == (4,)
    assert loaded.dataset.episodes == given.dataset.episodes == 24
    assert gym.make(loaded.env("zh").spec).observation_space.shape == (20,)


def test_a_world_goes_to_another_process_after_it_has_acted(run: Path) -> None:
    """As the functions that make a vector environment's workers take it along."""
    loaded = wm.load(run)
    frame = loaded.episode(0).frames[3]
    action, memory = loaded.act(frame)
    copied_world = pickle.loads(pickle.dumps(loaded))
    assert copied_world.act(frame) == (action, memory)
    assert loaded.act(frame) == (action, memory)


def test_random_play_has_the_limit_of_v_where_no_dataset_is_left(run: Path, tmp_path: Path) -> None:
    """An environment without a limit of its own would play its first episode forever."""
    folder = copied(run, tmp_path)
    loaded = wm.load(folder)
    vae = replace(loaded.vae, config=replace(loaded.vae.config, env=loaded.vae.config.env | {"max_steps": 5}))
    world = wm.World(Workspace(loaded.env_name, folder, (tmp_path / "none.zarr",)), vae, loaded.mdnrnn)
    assert "every episode is truncated after 5 actions" in world.evaluate("random", episodes=2).protocol


def test_damage_is_refused(run: Path, tmp_path: Path) -> None:
    file = copied(run, tmp_path) / "mdnrnn" / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-10] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(BadData, match=r"mdnrnn/weights.safetensors does not match its checksum"):
        wm.load(file.parent.parent)


def test_the_module_of_an_environment_is_imported_by_the_user_only(tmp_path: Path) -> None:
    """A run may come from a stranger, who would choose what is imported."""
    config = VaeConfig("small", 32, 3, 4, EnvConfig("stranger:Game-v0", 32).as_json())
    with Run(tmp_path, "vae", Recipe("vae", 1, {"network": "small", "latent": 4})).build(False, print) as builder:
        save_vae(builder.folder, config, config.build())
        builder.publish(METRICS["vae"], PROVENANCE)
    with pytest.raises(UsageProblem, match=r"whose module is not imported yet; `import stranger` first"):
        wm.load(tmp_path)


def test_datasets_lie_beside_the_runs_or_where_they_are_given(run: Path, tmp_path: Path, chain: Path) -> None:
    assert wm.load(run).dataset.episodes == 24
    alone = copied(run, tmp_path)
    with pytest.raises(MissingInput, match=r"Tiny-v0.zarr does not exist; run `wm collect"):
        wm.load(alone).dataset  # noqa: B018
    assert wm.load(alone, data=chain / "data" / f"{SLUG}.zarr").dataset.episodes == 24


def test_other_episodes_than_those_of_v_are_refused(run: Path, chain: Path, tmp_path: Path) -> None:
    shown = run_command(tmp_path, *arguments("collect", "--seed", "5", "--json"))
    other = tmp_path / json.loads(shown.stdout)["artifact"]
    with pytest.raises(RecipeMismatch, match=r"has other episodes than those .*vae was trained on"):
        wm.load(run, data=other).dataset  # noqa: B018


def test_latents_that_were_removed_leave_v_and_c(run: Path, tmp_path: Path, world: wm.World) -> None:
    loaded = wm.load(copied(run, tmp_path, "latents"))
    assert loaded.act(world.episode(0).frames[0])[0] in (0, 1, 2)
    for use in (lambda: loaded.dream([0]), loaded.env):
        with pytest.raises(MissingInput, match=r"run `wm train-mdnrnn"):
            use()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"run": ""}, "run is ''; expected the path of a folder."),
        ({"run": 5}, "run is 5; expected the path of a folder."),
        ({"agent": ""}, "agent is ''; expected the name of a controller, such as 'controller'."),
        ({"agent": None}, "agent is None; expected the name of a controller, such as 'controller'."),
        ({"data": 5}, "data is 5; expected the path of a folder."),
        ({"data": [""]}, "data is ''; expected the path of a folder."),
    ],
)
def test_what_is_no_path_and_no_name_is_refused(run: Path, values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageProblem) as caught:
        wm.load(**{"run": run, **values})
    assert str(caught.value) == message
