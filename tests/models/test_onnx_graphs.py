"""The modules that are exported compute what acting and dreaming compute, and onnxruntime computes what they do."""

from collections.abc import Callable

import numpy as np
import pytest
import torch

from wm.actions import ActionSpace
from wm.models import onnx_graphs
from wm.models.controller import Controller
from wm.models.mdnrnn.cell import make_cell
from wm.models.mdnrnn.network import MdnRnn, expected
from wm.models.mdnrnn.predictor import Predictor
from wm.models.mdnrnn.rollout_network import RolloutNetwork
from wm.models.onnx_graphs import Graph
from wm.models.vae.inference import InferenceEncoder
from wm.models.vae.networks import build
from wm.report.onnx_files import TOLERANCE, compare

ROWS = 6
BOX = ActionSpace(low=(-1.0, 0.0, 0.0), high=(1.0, 2.0, 3.0))
CONTROLLERS = {
    "argmax": Controller(4 + 8, ActionSpace(count=3), "argmax"),
    "ordered": Controller(4, ActionSpace(count=6), "ordered", (3, 0, 2), hidden=5),
    "categorical": Controller(8 + 8, ActionSpace(count=3), "categorical", layers=(6, 5), difference=True),
    "categorical of ordered": Controller(4, ActionSpace(count=6), "categorical", (3, 0, 2), layers=(6, 5)),
    "tanh": Controller(4 + 3, BOX, "tanh", previous_action=True),
    "beta": Controller(4, BOX, "beta", layers=(6, 5)),
    "beta of opposed": Controller(4, BOX, "beta", layers=(6, 5), opposed=(1, 2)),
}


def paper() -> Predictor:
    return MdnRnn(4, 3, 8, 5, 10.0).eval()


def rollout(hidden: int) -> Predictor:
    model = RolloutNetwork(4, 3, hidden, 16).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
        model.z_mean.normal_()
        model.residual_std.zero_()  # a sample is then the prediction itself
    return model


PREDICTORS: dict[str, Callable[[], Predictor]] = {
    "paper": paper,
    "rollout": lambda: rollout(8),
    "rollout without a cell": lambda: rollout(0),
}


def policy(name: str) -> Graph:
    controller = CONTROLLERS[name]
    return onnx_graphs.policy(controller, torch.randn(controller.parameters), 4, 8 if controller.inputs >= 12 else 0)


@pytest.mark.parametrize("name", PREDICTORS)
def test_a_step_is_that_of_dreams(name: str) -> None:
    model = PREDICTORS[name]()
    graph, cell = onnx_graphs.step(model, 3), make_cell(model, ROWS)
    state = model.initial_state(ROWS)
    z, action = torch.randn(ROWS, 4), torch.eye(3).repeat(2, 1)
    for _ in range(4):
        after, following, reward, continuation = graph.run(z, action, torch.cat(state, 1))
        sample, state = cell.advance(z, action, state, 1.0, torch.Generator(), None)
        assert torch.allclose(after, torch.cat(state, 1), atol=1e-5)
        assert torch.allclose(after[:, : model.hidden], state[0], atol=1e-5)
        assert torch.allclose(reward, sample.reward, atol=1e-4)
        assert torch.allclose(continuation, 1 - sample.end, atol=1e-5)
        if name != "paper":
            assert torch.allclose(following, sample.z, atol=1e-5)
        z = following


def test_the_mixture_has_the_prediction_of_the_step_as_its_mean() -> None:
    model = paper()
    assert isinstance(model, MdnRnn)
    z, action, state = torch.randn(ROWS, 4), torch.eye(3).repeat(2, 1), torch.randn(ROWS, 16)
    after, following, *_ = onnx_graphs.step(model, 3).run(z, action, state)
    logits, means, log_sigmas = onnx_graphs.mixture(model).run(z, after)
    assert torch.allclose((logits.exp() * means).sum(-1), following, atol=1e-6)
    assert torch.allclose(expected(model.predict(z, after[:, :8])), following, atol=1e-6)
    assert log_sigmas.shape == (ROWS, 4, 5)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_a_policy_acts_like_the_controller(name: str) -> None:
    controller, graph = CONTROLLERS[name], policy(name)
    values = {key: torch.randn(200, example.shape[1]) for key, example in graph.inputs.items()}
    action, outputs = graph.run(*values.values())
    z = values["z"]
    nothing = z[:, :0]
    features = controller.features(
        z, values.get("z_before", z), values.get("action_before", nothing), values.get("h", nothing)
    )
    parameters = graph.module.parameters_
    assert isinstance(parameters, torch.Tensor)
    weights = parameters.expand(200, -1)
    assert torch.equal(outputs, controller.evaluate(weights, features))
    assert np.allclose(action.numpy(), controller.act(weights, features), atol=1e-6)
    assert len(np.unique(action.numpy())) > 1


@pytest.mark.parametrize("network", ["small", "attentive", "paper"])
def test_an_encoder_gives_the_z_that_agents_see(network: str) -> None:
    vae = build(network, 32, 3, 4).eval()
    frames = torch.randint(0, 256, (ROWS, 32, 32, 3), dtype=torch.uint8)
    z, _ = onnx_graphs.encoder(vae).run(frames)
    assert torch.allclose(z, InferenceEncoder(vae, ROWS).encode(frames), atol=1e-5)
    (images,) = onnx_graphs.decoder(vae).run(z)
    assert images.shape == (ROWS, 32, 32, 3)
    assert torch.equal(images.permute(0, 3, 1, 2), vae.decode(z))


GRAPHS: dict[str, Callable[[], Graph]] = {
    **{f"encoder {name}": lambda name=name: onnx_graphs.encoder(build(name, 32, 1, 4)) for name in ("small", "paper")},
    "encoder attentive": lambda: onnx_graphs.encoder(build("attentive", 64, 3, 4)),
    **{f"decoder {name}": lambda name=name: onnx_graphs.decoder(build(name, 32, 3, 4)) for name in ("small", "paper")},
    **{f"step {name}": lambda name=name: onnx_graphs.step(PREDICTORS[name](), 3) for name in PREDICTORS},
    **{f"policy {name}": lambda name=name: policy(name) for name in CONTROLLERS},
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.extra("onnx")
@pytest.mark.filterwarnings("ignore")  # of torch's exporter
@pytest.mark.parametrize("name", GRAPHS)
def test_onnxruntime_computes_what_torch_does(name: str) -> None:
    graph = GRAPHS[name]()
    for output, ours, theirs in compare(onnx_graphs.to_onnx(graph, {"environment": "Pong"}), graph):
        assert np.allclose(ours, theirs, rtol=TOLERANCE, atol=TOLERANCE), output
