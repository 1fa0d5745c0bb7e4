import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stages.session import Session
from tests.conftest import PROVENANCE, SLUG, TINY, arguments, run
from wm.actions import ActionSpace
from wm.artifacts import durable, manifest
from wm.envs.registry import EnvConfig
from wm.episodes.latents import Latents, join
from wm.episodes.split import validation_mask
from wm.errors import BadData, MissingInput, RecipeMismatch
from wm.models.controller import ControllerConfig
from wm.models.dreamer.agent import Dreamer
from wm.models.dreamer.config import DreamerConfig
from wm.pretrained import (
    TrainedMdnRnn,
    controller_memory,
    load_dreamer,
    load_mdnrnn,
    load_vae,
    save_dreamer,
    save_mdnrnn,
)
from wm.run_models import load_all, load_pair


def test_v_m_and_c_are_loaded_frozen(chain: Path) -> None:
    vae, mdnrnn, controller = load_all(Session(TINY, run=chain / "runs" / SLUG).workspace)
    assert not any(p.requires_grad for model in (vae.model, mdnrnn.model) for p in model.parameters())
    assert not vae.model.training
    assert controller.parameters.shape == (controller.model.parameters,)


def test_a_controller_of_z_alone_with_hidden_units_comes_back_as_it_was(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    options = ("--set", "hidden=2", "--set", "memory=none", "--max-generations", "1")
    run(tmp_path, *arguments("train-controller", *options))
    vae, _, controller = load_all(Session(TINY, run=tmp_path / "runs" / SLUG).workspace)
    model = controller.model
    assert (model.inputs, model.hidden) == (vae.model.latent, 2)
    assert controller.config.memory == "none"


def test_damaged_weights_are_refused(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG / "vae", tmp_path / "vae")
    file = tmp_path / "vae" / "weights.safetensors"
    data = bytearray(file.read_bytes())
    data[-10] ^= 1
    file.write_bytes(bytes(data))
    with pytest.raises(BadData, match=r"weights.safetensors does not match its checksum"):
        load_vae(tmp_path / "vae", "wm train-vae")


def test_what_is_missing_names_its_command(tmp_path: Path) -> None:
    with pytest.raises(MissingInput, match="run `wm train-vae --env Pong --run "):
        load_all(Session("Pong", run=tmp_path).workspace)


def rewrite(folder: Path, description: dict[str, Any]) -> None:
    """Give an artifact another model.json, and a manifest that agrees with it."""
    durable.write_json(folder / "model.json", description)
    reseal(folder)


def reseal(folder: Path) -> None:
    """Give an artifact a manifest that agrees with its files."""
    body = json.loads((folder / manifest.NAME).read_text())
    files = body.pop("files")
    body.pop("sha256")
    manifest.write(folder, body, list(files))


@pytest.mark.parametrize(
    ("name", "table", "key", "value", "sentence"),
    [
        ("vae", "env", "gray", True, "the network sees frames of 32x32x3; expected 32x32x1"),
        ("vae", "env", "size", 64, "the network sees frames of 32x32x3; expected 64x64x3"),
        ("controller", "config", "difference", True, "inputs is 20; expected 24, as its config, V, M"),
        ("controller", "config", "memory", "none", "inputs is 20; expected 4, as its config, V, M"),
        ("controller", "", "ordered", [0, 1, 99], r"ordered is \[0, 1, 99\]; expected actions of 3 discrete actions"),
        ("controller", "", "serve", -1, r"serve is \[-1\]; expected actions of 3 discrete actions|serve is -1"),
    ],
    ids=["gray V", "large V", "C with differences", "C of z", "ordered actions", "serving action"],
)
def test_models_that_do_not_fit_each_other_are_refused(
    chain: Path, tmp_path: Path, name: str, table: str, key: str, value: object, sentence: str
) -> None:
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "run")
    description = json.loads((tmp_path / "run" / name / "model.json").read_text())
    (description[table] if table else description)[key] = value
    rewrite(tmp_path / "run" / name, description)
    with pytest.raises((BadData, RecipeMismatch)) as caught:
        load_all(Session(TINY, run=tmp_path / "run").workspace)
    assert re.search(sentence, str(caught.value)), caught.value


def test_an_m_of_other_latents_is_refused(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "run")
    folder = tmp_path / "run" / "mdnrnn"
    config = replace(load_mdnrnn(folder, "").config, latent=5)
    save_mdnrnn(folder, config, config.build())
    reseal(folder)
    with pytest.raises(BadData, match="M predicts 5 latents; expected 4, as V has"):
        load_pair(Session(TINY, run=tmp_path / "run").workspace)


def test_a_controller_for_other_actions_is_refused(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs" / SLUG, tmp_path / "run")
    folder = tmp_path / "run" / "controller"
    shape = json.loads((folder / "model.json").read_text())
    shape |= {
        "action_space": {"count": 0, "low": [-1.0] * 3, "high": [1.0] * 3},
        "config": shape["config"] | {"head": "tanh"},
    }
    rewrite(folder, shape)
    with pytest.raises(
        RecipeMismatch, match=r"acts with actions of 3 dimensions from -1 to 1 but .* was trained on 3 discrete actions"
    ):
        load_all(Session(TINY, run=tmp_path / "run").workspace)


def test_an_untrained_memory_is_the_same_for_a_seed_and_none_is_none(chain: Path) -> None:
    _, mdnrnn, _ = load_all(Session(TINY, run=chain / "runs" / SLUG).workspace)
    one, two, other = (
        controller_memory(mdnrnn, ControllerConfig("argmax", 0, "untrained", seed)) for seed in (1, 1, 2)
    )
    assert one is not None
    assert two is not None
    assert other is not None
    assert (one.heads.weight == two.heads.weight).all()
    assert not (one.heads.weight == other.heads.weight).all()
    assert one.reward_mean == two.reward_mean == mdnrnn.model.reward_mean, (
        "constants of the data, which are not trained"
    )
    assert controller_memory(mdnrnn, ControllerConfig("argmax", 0, "none")) is None
    assert controller_memory(mdnrnn, ControllerConfig("argmax")) is mdnrnn.model


@pytest.mark.parametrize(
    ("table", "changes", "sentence"),
    [
        ("config", {"size": 48}, "describes no model .* 32, 64, 96, 128, not 48"),
        ("config", {"layers": 65}, "layers is 65; expected an integer from 1 to 64"),
        ("env", {"size": 64}, "the network takes frames of 32x32x3; expected 64x64x3, as its environment has"),
        ("env", {"gray": True}, "the network takes frames of 32x32x3; expected 32x32x1, as its environment has"),
        ("action_space", {"count": 4}, "the network takes actions of 3 choices; expected 4 choices"),
        ("action_space", {"count": 0, "low": [0.0] * 3, "high": [1.0] * 3}, "of 3 choices; expected 3 dimensions"),
    ],
)
def test_a_dreamer_that_does_not_fit_its_environment_is_refused(
    tmp_path: Path, table: str, changes: dict[str, Any], sentence: str
) -> None:
    """Frames of one channel were spread over the three that its encoder takes, and it got a score."""
    folder = make_dreamer(tmp_path)
    assert load_dreamer(folder, "wm train-dreamer").env.size == 32
    description = json.loads((folder / "model.json").read_text())
    description[table] |= changes
    rewrite(folder, description)
    with pytest.raises(BadData, match=sentence):
        load_dreamer(folder, "wm train-dreamer")


def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_dreamer(tmp_path)
    description = json.loads((folder / "model.json").read_text())
    description["config"] |= {"layers": 64, "units": 8192}  # 51 GB
    rewrite(folder, description)
    devices = set[str]()

    class Watched(Dreamer):
        def __init__(self, config: DreamerConfig) -> None:
            super().__init__(config)
            devices.update(parameter.device.type for parameter in self.parameters())

    monkeypatch.setattr("wm.pretrained.Dreamer", Watched)
    with pytest.raises(BadData, match=r"weights\.safetensors: .* has shape .*; expected"):
        load_dreamer(folder, "wm train-dreamer")
    assert devices == {"meta"}


@pytest.mark.parametrize("name", ["model.json", "weights.safetensors"])
def test_a_file_that_is_larger_than_it_can_be_is_not_read(tmp_path: Path, name: str) -> None:
    folder = make_dreamer(tmp_path)
    with (folder / name).open("ab") as file:
        file.truncate(1 << 33)
    body = {key: value for key, value in manifest.read_json(folder / manifest.NAME).items() if key != "sha256"}
    body["files"][name]["size"] = 1 << 33
    (folder / manifest.NAME).write_bytes(manifest.sealed(body))
    with pytest.raises(BadData, match=rf"{name} has 8589934592 bytes; expected at most 1\d\d\d\d\d\d, so"):
        load_dreamer(folder, "wm train-dreamer")


def make_dreamer(tmp_path: Path) -> Path:
    """The artifact of a small Dreamer that was not trained."""
    folder, space = tmp_path / "dreamer", ActionSpace(3)
    config = DreamerConfig(32, 3, space.width, True, deter=8, hidden=4, stoch=2, classes=2, depth=2, units=4, bins=3)
    folder.mkdir()
    save_dreamer(folder, Dreamer(config), EnvConfig(TINY, size=32), space)
    counts = ("env_steps", "updates", "capacity", "parameters", "training_episodes", "validation_episodes")
    returns = ("training_return", "validation_return", "first_squared_error")
    metrics = dict.fromkeys(counts, 0) | dict.fromkeys(returns)
    recipe: dict[str, Any] = {"settings": {}, "inputs": {}}
    body = {"kind": "dreamer", "metrics": metrics, "provenance": PROVENANCE, "recipe": recipe}
    manifest.write(folder, {**body, "fingerprint": manifest.sha256_json(recipe)})
    return folder


def test_what_m_did_not_learn_from_is_known_for_every_dataset_by_itself() -> None:
    seeds = np.arange(200)
    lone = seeds[validation_mask(seeds, 0.1)][:1]  # held out, if it were not its dataset's only episode
    space = ActionSpace(count=2)

    def latents(seeds: Any) -> Latents:
        rows = np.zeros((len(seeds), 2), np.float32)
        ends, actions, no = np.arange(len(seeds)) + 1, space.column(len(seeds)), np.zeros(len(seeds), bool)
        return Latents(rows, rows, actions, rows[:, 0], ends, no, seeds, space)

    mdnrnn = TrainedMdnRnn(SimpleNamespace(settings={"validation_share": 0.1}), None, None)  # type: ignore[arg-type]
    held_out = mdnrnn.held_out(join([latents(seeds), latents(lone), latents(seeds[:2])]))
    masks = [validation_mask(part, 0.1) for part in (seeds, lone, seeds[:2])]
    assert np.array_equal(held_out, np.concatenate(masks))
    assert not held_out[len(seeds)]
    assert np.array_equal(mdnrnn.held_out(latents(seeds)), masks[0])
