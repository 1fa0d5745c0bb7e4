import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.session import Session
from tests.conftest import SLUG, TINY, arguments, outcome, run
from wm.artifacts.manifest import NAME
from wm.artifacts.runs import Artifact
from wm.dreams.initial_states import load_latents
from wm.episodes.dataset import Dataset
from wm.episodes.frame_batches import FrameReader
from wm.errors import RecipeMismatch
from wm.evolution.transfer import TransferSource, transferred_weights, weights_on_memory
from wm.models.mdnrnn.network import MdnRnn
from wm.pretrained import load_all
from wm.settings import MdnRnnSettings
from wm.training.warm_start import load_initial_weights


def opened(chain: Path):
    session = Session(TINY, run=chain / "runs" / SLUG)
    vae, mdnrnn, controller = load_all(session.workspace)
    return TransferSource(controller, mdnrnn, vae), mdnrnn, load_latents(session, mdnrnn)


def other(mdnrnn, model: MdnRnn):
    """The same artifact under another fingerprint, with another model."""
    artifact = Artifact(mdnrnn.artifact.folder, mdnrnn.artifact.manifest | {"fingerprint": "0" * 64})
    return replace(mdnrnn, artifact=artifact, model=model)


def test_with_the_same_m_a_controller_is_carried_over_bit_for_bit(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    found = transferred_weights(previous, mdnrnn, previous.controller.config, previous.controller.model, latents)
    assert np.array_equal(found, previous.controller.parameters)


def test_with_hidden_units_in_another_order_it_still_says_the_same(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    order = torch.randperm(mdnrnn.model.hidden, generator=torch.Generator().manual_seed(0))
    gates = torch.cat([order + gate * mdnrnn.model.hidden for gate in range(4)])
    state = {name: value.clone() for name, value in mdnrnn.model.state_dict().items()}
    for name in ("lstm.weight_ih_l0", "lstm.bias_ih_l0", "lstm.bias_hh_l0"):
        state[name] = state[name][gates]
    state["lstm.weight_hh_l0"] = state["lstm.weight_hh_l0"][gates][:, order]
    turned = mdnrnn.config.build()
    turned.load_state_dict(state)
    found = transferred_weights(
        previous,
        other(mdnrnn, turned.requires_grad_(False)),
        previous.controller.config,
        previous.controller.model,
        latents,
    )
    latent, width = mdnrnn.model.latent, mdnrnn.model.latent + mdnrnn.model.hidden
    new = found[: 3 * width].reshape(3, width)
    old = np.asarray(previous.controller.parameters)[: 3 * width].reshape(3, width)
    assert np.abs(new[:, :latent] - old[:, :latent]).max() < 0.1
    assert np.corrcoef(new[:, latent:].ravel(), old[:, latent:][:, order].ravel())[0, 1] > 0.9


def test_one_that_makes_no_use_of_the_memory_stays_as_it_is(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    blind = np.array(previous.controller.parameters, np.float32)
    weights_on_memory(blind, previous.controller.model, mdnrnn.model.latent)[:] = 0
    anew = mdnrnn.config.build().requires_grad_(False)
    previous = replace(previous, controller=replace(previous.controller, parameters=blind))
    found = transferred_weights(
        previous, other(mdnrnn, anew), previous.controller.config, previous.controller.model, latents
    )
    assert np.array_equal(found, blind)


def without_memory(previous: TransferSource, latent: int):
    return replace(previous.controller.config, memory="none"), replace(previous.controller.model, inputs=latent)


def test_one_that_makes_no_use_of_the_memory_goes_on_without_it_and_back(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    there, latent = previous.controller, mdnrnn.model.latent
    blind = np.array(there.parameters, np.float32)
    weights_on_memory(blind, there.model, latent)[:] = 0
    form, model = without_memory(previous, latent)
    found = transferred_weights(
        replace(previous, controller=replace(there, parameters=blind)), mdnrnn, form, model, latents
    )
    outputs, width = there.model.outputs, there.model.inputs
    weights = blind[: outputs * width].reshape(outputs, width)[:, :latent]
    assert np.array_equal(found, np.concatenate([weights.ravel(), blind[outputs * width :]]))
    sighted = replace(there, config=form, model=model, parameters=found)
    assert np.array_equal(
        transferred_weights(replace(previous, controller=sighted), mdnrnn, there.config, there.model, latents), blind
    )


def test_one_that_makes_use_of_the_memory_says_nearly_the_same_without_it(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    there, latent = previous.controller, mdnrnn.model.latent
    outputs, width = there.model.outputs, there.model.inputs
    evolved = np.random.default_rng(0).normal(size=there.model.parameters).astype(np.float32)
    weights_on_memory(evolved, there.model, latent)[:] *= 0.1
    form, model = without_memory(previous, latent)
    found = transferred_weights(
        replace(previous, controller=replace(there, parameters=evolved)), mdnrnn, form, model, latents
    )
    for new, old in zip(
        latents.means @ found[: outputs * latent].reshape(outputs, latent).T,
        latents.means @ evolved[: outputs * width].reshape(outputs, width)[:, :latent].T,
        strict=True,
    ):
        assert np.abs(new - old).max() < 1


def test_another_controller_memory_the_same_m_needs_other_weights(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    there = previous.controller
    for form in (replace(there.config, memory="untrained"), replace(there.config, memory="untrained", memory_seed=1)):
        found = transferred_weights(previous, mdnrnn, form, there.model, latents)
        assert not np.array_equal(found, there.parameters)
        there = replace(there, config=form)
        previous = replace(previous, controller=there)


def test_hidden_units_on_z_alone_are_carried_over_to_another_m(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    model = replace(previous.controller.model, inputs=mdnrnn.model.latent, hidden=2, gain=4.5)
    evolved = np.random.default_rng(0).normal(size=model.parameters).astype(np.float32)
    form = replace(previous.controller.config, memory="none", hidden=2, gain=4.5)
    blind = replace(previous.controller, model=model, config=form, parameters=evolved)
    found = transferred_weights(replace(previous, controller=blind), other(mdnrnn, mdnrnn.model), form, model, latents)
    assert np.array_equal(found, evolved)


def test_what_a_controller_makes_of_the_memory_is_not_dropped_silently(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    over_z = ("--set", "evened=true", "--set", "even_over=z", "--name", "again")
    done = outcome(tmp_path, *arguments("train-controller", "--from", f"runs/{SLUG}", *over_z))
    assert done.returncode == 64
    assert "leaves out what the controller of" in done.stderr
    assert not list((tmp_path / "runs").rglob("again*"))


def test_a_controller_of_another_form_is_refused(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    with pytest.raises(RecipeMismatch, match="has another form"):
        transferred_weights(
            previous, mdnrnn, previous.controller.config, replace(previous.controller.model, hidden=4), latents
        )


def test_weights_of_another_shape_are_refused_with_both_shapes(chain: Path) -> None:
    model = MdnRnn(4, 3, 8, 5, 10.0)
    with pytest.raises(RecipeMismatch, match=r"heads.weight is \(62, 16\), expected \(62, 8\)"):
        load_initial_weights(MdnRnnSettings(init_from=str(chain / "runs" / SLUG)), "mdnrnn", model)


def test_latents_of_the_run_before_are_not_made_again(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    words = arguments("train-mdnrnn", "--run", "runs/again", "--from", f"runs/{SLUG}", "--steps", "20")
    told = run(tmp_path, *words).stderr
    assert "latents are taken over from" in told
    assert "encode" not in told
    before, after = (json.loads((tmp_path / "runs" / name / "latents" / NAME).read_text()) for name in (SLUG, "again"))
    assert before == after


def test_from_a_run_that_is_not_there_says_what_to_run(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    done = outcome(tmp_path, *arguments("train-controller", "--from", "runs/nowhere"))
    assert done.returncode == 66
    assert "run `wm train-controller --run runs/nowhere` first" in done.stderr


def of_another_v(previous: TransferSource) -> TransferSource:
    """The same controller, as if it had been evolved on a V whose latents are these in the opposite order."""
    body = previous.controller.artifact.manifest
    recipe = body["recipe"] | {"inputs": body["recipe"]["inputs"] | {"vae": "0" * 64}}
    changed = replace(previous.controller, artifact=Artifact(Path("elsewhere"), body | {"recipe": recipe}))
    vae = copy.deepcopy(previous.vae)
    with torch.no_grad():
        for parameter in (vae.model.mean.weight, vae.model.mean.bias):
            parameter.copy_(parameter.flip(0))
    return TransferSource(changed, previous.mdnrnn, vae)


def test_without_the_episodes_a_controller_of_another_v_is_refused(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    with pytest.raises(RecipeMismatch, match="evolved on another V, and no --data"):
        transferred_weights(
            of_another_v(previous), mdnrnn, previous.controller.config, previous.controller.model, latents
        )


def test_with_another_v_a_controller_says_the_same_of_the_same_frames(chain: Path) -> None:
    previous, mdnrnn, latents = opened(chain)
    model, latent = previous.controller.model, mdnrnn.model.latent
    blind = np.random.default_rng(0).normal(size=model.parameters).astype(np.float32)
    weights_on_memory(blind, model, latent)[:] = 0
    previous = of_another_v(replace(previous, controller=replace(previous.controller, parameters=blind)))
    frames = FrameReader(Dataset.open(chain / "data" / f"{SLUG}.zarr"))
    found = transferred_weights(previous, mdnrnn, previous.controller.config, model, latents, frames)
    width = model.inputs
    rows = [part[: model.outputs * width].reshape(-1, width) for part in (found, blind)]
    said = [latents.means @ rows[0][:, :latent].T, latents.means[:, ::-1] @ rows[1][:, :latent].T]
    for one, other_ in zip(said[0].T, said[1].T, strict=True):
        assert np.corrcoef(one, other_)[0, 1] > 0.9


def test_a_second_round_may_have_a_v_of_its_own(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    before = ("--run", "runs/again", "--from", f"runs/{SLUG}")
    run(tmp_path, *arguments("train-vae", *before, "--steps", "20"))
    told = run(tmp_path, *arguments("train-mdnrnn", *before, "--steps", "20")).stderr
    assert "are taken over from" not in told
    elsewhere = outcome(tmp_path, *arguments("train-controller", *before, "--data", "data/none.zarr"))
    assert elsewhere.returncode == 78
    assert "give it with --data" in elsewhere.stderr
    run(tmp_path, *arguments("train-controller", *before))
    body = {
        (where, name): json.loads((tmp_path / "runs" / where / name / NAME).read_text())
        for where, name in ((SLUG, "vae"), (SLUG, "mdnrnn"), (SLUG, "controller"), ("again", "controller"))
    }
    spent = sum(body[SLUG, name]["provenance"]["wall_seconds"] for name in ("vae", "mdnrnn"))
    spent += body[SLUG, "controller"]["metrics"]["seconds"]
    assert body["again", "controller"]["metrics"]["seconds_before"] == pytest.approx(spent)
