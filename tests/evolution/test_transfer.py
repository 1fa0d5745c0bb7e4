import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from stages.session import Session
from tests.conftest import SLUG, TINY, arguments, outcome, run
from wm.artifacts.runs import Artifact
from wm.dreams.initial_states import load_latents
from wm.episodes.latents import Latents
from wm.errors import MissingInput, RecipeMismatch
from wm.evolution.transfer import (
    TransferSource,
    _inputs_of,
    initial_parameters,
    load_transfer_source,
    transferred_weights,
    weights_on_memory,
)
from wm.models.mdnrnn.network import MdnRnn
from wm.pretrained import TrainedMdnRnn, controller_memory
from wm.run_models import load_all


def trained(chain: Path) -> tuple[TransferSource, TrainedMdnRnn, Latents]:
    workspace = Session(TINY, run=chain / "runs" / SLUG).workspace
    _, mdnrnn, controller = load_all(workspace)
    return TransferSource(workspace, controller, mdnrnn), mdnrnn, load_latents(workspace, mdnrnn)


def retrained(mdnrnn: TrainedMdnRnn, model: MdnRnn) -> TrainedMdnRnn:
    """The same artifact with another fingerprint and another model."""
    artifact = Artifact(mdnrnn.artifact.folder, mdnrnn.artifact.manifest | {"fingerprint": "0" * 64})
    return replace(mdnrnn, artifact=artifact, model=model)


def transfer(source: TransferSource, mdnrnn: TrainedMdnRnn, latents: Latents) -> np.ndarray:
    """To the same config and network."""
    return transferred_weights(source, mdnrnn, source.controller.config, source.controller.model, latents)


def with_parameters(source: TransferSource, parameters: np.ndarray) -> TransferSource:
    return replace(source, controller=replace(source.controller, parameters=parameters))


def blind(source: TransferSource, latent: int) -> np.ndarray:
    """The source's parameters with zero weights on h."""
    parameters = np.array(source.controller.parameters, np.float32)
    weights_on_memory(parameters, source.controller.model, latent)[:] = 0
    return parameters


def test_with_the_same_m_a_controller_keeps_its_parameters_bit_for_bit(chain: Path) -> None:
    source, mdnrnn, latents = trained(chain)
    assert np.array_equal(transfer(source, mdnrnn, latents), source.controller.parameters)


def test_with_permuted_hidden_units_the_weights_are_permuted(chain: Path) -> None:
    source, mdnrnn, latents = trained(chain)
    order = torch.randperm(mdnrnn.model.hidden, generator=torch.Generator().manual_seed(0))
    gates = torch.cat([order + gate * mdnrnn.model.hidden for gate in range(4)])
    state = {name: value.clone() for name, value in mdnrnn.model.state_dict().items()}
    for name in ("lstm.weight_ih_l0", "lstm.bias_ih_l0", "lstm.bias_hh_l0"):
        state[name] = state[name][gates]
    state["lstm.weight_hh_l0"] = state["lstm.weight_hh_l0"][gates][:, order]
    permuted = mdnrnn.config.build()
    permuted.load_state_dict(state)
    weights = transfer(source, retrained(mdnrnn, permuted.requires_grad_(False)), latents)
    latent, width = mdnrnn.model.latent, mdnrnn.model.latent + mdnrnn.model.hidden
    new = weights[: 3 * width].reshape(3, width)
    old = np.asarray(source.controller.parameters)[: 3 * width].reshape(3, width)
    assert np.abs(new[:, :latent] - old[:, :latent]).max() < 0.1
    assert np.corrcoef(new[:, latent:].ravel(), old[:, latent:][:, order].ravel())[0, 1] > 0.9


def test_a_controller_without_weights_on_the_memory_keeps_its_parameters(chain: Path) -> None:
    source, mdnrnn, latents = trained(chain)
    parameters = blind(source, mdnrnn.model.latent)
    initial = mdnrnn.config.build().requires_grad_(False)
    assert np.array_equal(
        transfer(with_parameters(source, parameters), retrained(mdnrnn, initial), latents), parameters
    )


def test_a_controller_without_weights_on_the_memory_can_drop_the_memory_and_regain_it(chain: Path) -> None:
    source, mdnrnn, latents = trained(chain)
    old, latent = source.controller, mdnrnn.model.latent
    parameters = blind(source, latent)
    config, model = replace(old.config, memory="none"), replace(old.model, inputs=latent)
    dropped = transferred_weights(with_parameters(source, parameters), mdnrnn, config, model, latents)
    outputs, width = old.model.outputs, old.model.inputs
    weights = parameters[: outputs * width].reshape(outputs, width)[:, :latent]
    assert np.array_equal(dropped, np.concatenate([weights.ravel(), parameters[outputs * width :]]))
    without = replace(source, controller=replace(old, config=config, model=model, parameters=dropped))
    assert np.array_equal(transferred_weights(without, mdnrnn, old.config, old.model, latents), parameters)


def test_a_controller_with_weights_on_the_memory_has_similar_outputs_without_it(chain: Path) -> None:
    source, mdnrnn, latents = trained(chain)
    old, latent = source.controller, mdnrnn.model.latent
    outputs, width = old.model.outputs, old.model.inputs
    parameters = np.random.default_rng(0).normal(size=old.model.parameters).astype(np.float32)
    weights_on_memory(parameters, old.model, latent)[:] *= 0.1
    config, model = replace(old.config, memory="none"), replace(old.model, inputs=latent)
    dropped = transferred_weights(with_parameters(source, parameters), mdnrnn, config, model, latents)
    new_outputs = latents.means @ dropped[: outputs * latent].reshape(outputs, latent).T
    old_outputs = latents.means @ parameters[: outputs * width].reshape(outputs, width)[:, :latent].T
    assert np.abs(new_outputs - old_outputs).max() < 1


def test_another_memory_of_the_same_m_needs_other_weights(chain: Path) -> None:
    source, mdnrnn, latents = trained(chain)
    for seed in (0, 1):
        old = source.controller
        config = replace(old.config, memory="untrained", memory_seed=seed)
        assert not np.array_equal(transferred_weights(source, mdnrnn, config, old.model, latents), old.parameters)
        source = replace(source, controller=replace(old, config=config))


def test_hidden_units_on_z_alone_are_transferred_to_another_m(chain: Path) -> None:
    source, mdnrnn, latents = trained(chain)
    model = replace(source.controller.model, inputs=mdnrnn.model.latent, hidden=2)
    parameters = np.random.default_rng(0).normal(size=model.parameters).astype(np.float32)
    config = replace(source.controller.config, memory="none", hidden=2)
    without = replace(source, controller=replace(source.controller, model=model, config=config, parameters=parameters))
    weights = transferred_weights(without, retrained(mdnrnn, mdnrnn.model), config, model, latents)
    assert np.array_equal(weights, parameters)


def test_another_network_is_refused(chain: Path) -> None:
    source, mdnrnn, latents = trained(chain)
    hidden = replace(source.controller.model, hidden=4)
    with pytest.raises(RecipeMismatch, match="is another network"):
        transferred_weights(source, mdnrnn, source.controller.config, hidden, latents)


def test_another_v_is_refused(chain: Path) -> None:
    source, mdnrnn, latents = trained(chain)
    body = source.controller.artifact.manifest
    recipe = body["recipe"] | {"inputs": body["recipe"]["inputs"] | {"vae": "0" * 64}}
    artifact = Artifact(Path("elsewhere"), body | {"recipe": recipe})
    other = replace(source, controller=replace(source.controller, artifact=artifact))
    with pytest.raises(RecipeMismatch, match="has another V"):
        transfer(other, mdnrnn, latents)


@pytest.mark.slow
def test_on_another_v_a_linear_policy_is_imitated_in_the_episodes_that_both_have(chain: Path, tmp_path: Path) -> None:
    for name in ("data", "runs"):
        shutil.copytree(chain / name, tmp_path / name)
    first, again = (tmp_path / "runs" / name for name in (SLUG, "again"))
    run(tmp_path, *arguments("train-vae", "--run", "runs/again", "--seed", "7"))
    run(tmp_path, *arguments("train-mdnrnn", "--run", "runs/again", "--steps", "10"))
    words = arguments("train-controller", "--run", "runs/again", "--init-from", f"runs/{SLUG}")
    assert "has another V than" in (refused := outcome(tmp_path, *words)).stderr
    assert "add --set imitate=true" in refused.stderr
    run(tmp_path, *words, "--set", "imitate=true")
    of_first = Session(TINY, run=first).workspace
    _, mdnrnn, old = load_all(of_first)
    workspace = Session(TINY, run=again).workspace
    _, other, new = load_all(workspace)
    weights, _ = initial_parameters(str(first), workspace, other, new.config, new.model, imitate=True)
    outputs = []
    for models, parameters, place in (((mdnrnn, old), old.parameters, of_first), ((other, new), weights, workspace)):
        memory, latents = controller_memory(models[0], models[1].config), load_latents(place, models[0])
        inputs = torch.as_tensor(_inputs_of(memory, latents), dtype=torch.float32)
        packed = models[1].model.pack(torch.as_tensor(np.asarray(parameters)), len(inputs))
        outputs.append(packed(inputs).numpy())
    assert np.corrcoef(outputs[0].ravel(), outputs[1].ravel())[0, 1] > 0.9


def test_init_from_a_missing_run_names_the_command_that_makes_it(chain: Path, tmp_path: Path) -> None:
    shutil.copytree(chain / "runs", tmp_path / "runs")
    shutil.copytree(chain / "data", tmp_path / "data")
    done = outcome(tmp_path, *arguments("train-controller", "--init-from", "runs/nowhere"))
    assert done.returncode == 66
    assert f"run `wm train-controller --env {TINY} --run runs/nowhere` first" in done.stderr


def test_the_cost_of_a_search_includes_the_searches_before_it_and_their_m(chain: Path) -> None:
    source, mdnrnn, _ = trained(chain)
    metrics = source.controller.artifact.metrics
    assert source.cost(mdnrnn) == {"env_steps_before": metrics["env_steps"], "seconds_before": metrics["seconds"]}
    other = source.cost(retrained(mdnrnn, mdnrnn.model))["seconds_before"]
    assert other == pytest.approx(metrics["seconds"] + mdnrnn.artifact.manifest["provenance"]["wall_seconds"])


def test_the_cost_of_a_source_without_its_v_names_the_command_that_makes_it(chain: Path, tmp_path: Path) -> None:
    run = tmp_path / "half"
    shutil.copytree(chain / "runs" / SLUG, run, ignore=shutil.ignore_patterns("vae"))
    _, mdnrnn, _ = trained(chain)
    artifact = mdnrnn.artifact
    recipe = artifact.manifest["recipe"] | {"inputs": artifact.inputs | {"vae": "0" * 64}}
    other = replace(mdnrnn, artifact=Artifact(artifact.folder, artifact.manifest | {"recipe": recipe}))
    with pytest.raises(MissingInput, match=f"run `wm train-vae --env {TINY} --run {run}` first"):
        load_transfer_source(str(run), TINY).cost(other)


def test_a_search_starts_from_zero_at_no_cost_or_from_the_controller_of_init_from(chain: Path) -> None:
    run, workspace = chain / "runs" / SLUG, Session(TINY, run=chain / "runs" / SLUG).workspace
    _, mdnrnn, controller = load_all(workspace)
    starts = [
        initial_parameters(source, workspace, mdnrnn, controller.config, controller.model, imitate=False)
        for source in (None, str(run))
    ]
    assert not starts[0][0].any()
    assert starts[0][1] == {"env_steps_before": 0, "seconds_before": 0.0}
    assert np.array_equal(starts[1][0], controller.parameters)
    assert starts[1][1]["env_steps_before"] == controller.artifact.metrics["env_steps"]
