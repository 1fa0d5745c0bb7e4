"""V's decoder, M and C as plain values and weights, for the classes of models.js.

Pictures are channels last there, and each layer is the matrix that layers.js multiplies with.
"""

from typing import Any

import torch
from torch import Tensor, nn

from wm.actions import MOST_OPPOSED
from wm.models.action_distributions import EDGE
from wm.models.controller import SERVE_STEPS, THRESHOLD, Controller
from wm.models.mdnrnn.mixture_nll import LOG_SIGMA
from wm.models.mdnrnn.network import MdnRnn
from wm.models.mdnrnn.predictor import Predictor
from wm.models.mdnrnn.rollout_inference import NOISE
from wm.models.mdnrnn.rollout_network import RolloutNetwork
from wm.models.vae.networks import AttentiveVae, PaperVae, SmallVae, Vae
from wm.pretrained import TrainedController
from wm.report.play.weights import Add

Description = dict[str, Any]
_SHUFFLE = 4  # pixels of a side that the small decoder's last layer draws at once


@torch.no_grad()
def describe_decoder(vae: Vae, add: Add) -> Description:
    """V's decoder."""
    if isinstance(vae, PaperVae):
        layers = _paper_decoder(vae, add)
    else:
        assert isinstance(vae, SmallVae | AttentiveVae)
        layers = _small_decoder(vae, add)
    # logit of 0 or 1 is infinite; the same bound as in wm/models/vae/networks.py, or pictures would differ.
    logits = torch.logit(vae.mean_image, eps=1e-3).permute(1, 2, 0)
    return {"size": vae.size, "channels": vae.channels, "layers": layers, "mean": add(logits)}


def _small_decoder(vae: SmallVae | AttentiveVae, add: Add) -> list[Description]:
    first, second = (layer for layer in vae.decoder if isinstance(layer, nn.ConvTranspose2d))
    (last,) = (layer for layer in vae.decoder if isinstance(layer, nn.Conv2d))
    side = vae.size // 16
    matrix, bias = (_channels_last(part, side) for part in (vae.expand.weight, vae.expand.bias))
    # Depth to space takes channel, row, column; here the channel comes last.
    order = torch.arange(last.out_channels).view(vae.channels, _SHUFFLE**2).T.flatten()
    kernel = last.weight[order].permute(0, 2, 3, 1)
    return [
        _linear(matrix, bias, add, "relu"),
        _deconvolution(first, side, add, "relu"),
        _deconvolution(second, 2 * side, add, "relu"),
        _described("convolution", kernel, last.bias[order] if last.bias is not None else None, add)
        | {
            "inputs": last.in_channels,
            "outputs": last.out_channels,
            "side": 4 * side,
            "kernel": last.kernel_size[0],
            "padding": 1,
        },
        {"op": "shuffle", "side": 4 * side, "block": _SHUFFLE, "channels": vae.channels},
    ]


def _channels_last(rows: Tensor, side: int) -> Tensor:
    """Rows (C side side, ...) in the order (side, side, C)."""
    return rows.unflatten(0, (-1, side, side)).permute(1, 2, 0, *range(3, rows.ndim + 2)).flatten(0, 2)


def _paper_decoder(vae: PaperVae, add: Add) -> list[Description]:
    first, *others = (layer for layer in vae.deconvolutions if isinstance(layer, nn.ConvTranspose2d))
    side, activation = first.kernel_size[0], "relu"
    # Nothing bends between the latents and the first layer, a matrix with 3.3 million numbers: their product has 0.1.
    # double: a product that is computed once, and then rounded once.
    kernel = _channels_last(first.weight.flatten(1).T, side).double()
    assert first.bias is not None
    bias = kernel @ vae.expand.bias.double() + first.bias.double().repeat(side * side)
    layers = [_linear(kernel @ vae.expand.weight.double(), bias, add, activation)]
    for layer in others:
        activation = "" if layer is others[-1] else activation
        layers.append(_deconvolution(layer, side, add, activation))
        side = 2 * side + layer.kernel_size[0] - 2
    return layers


def _linear(matrix: Tensor, bias: Tensor, add: Add, activation: str = "") -> Description:
    outputs, inputs = matrix.shape
    return _described("linear", matrix, bias, add, activation) | {"inputs": inputs, "outputs": outputs}


def _deconvolution(layer: nn.ConvTranspose2d, side: int, add: Add, activation: str) -> Description:
    kernel = layer.weight.permute(2, 3, 1, 0)
    padding = layer.padding[0]
    assert isinstance(padding, int)
    return _described("deconvolution", kernel, layer.bias, add, activation) | {
        "inputs": layer.in_channels,
        "outputs": layer.out_channels,
        "side": side,
        "kernel": layer.kernel_size[0],
        "padding": padding,
    }


def _described(op: str, matrix: Tensor, bias: Tensor | None, add: Add, activation: str = "") -> Description:
    assert bias is not None
    return {"op": op, "weight": add(matrix), "bias": add(bias), "activation": activation}


def _perceptron(layers: nn.Module, add: Add) -> list[Description]:
    """Linear layers with SiLU between them."""
    linear = [layer for layer in layers.children() if isinstance(layer, nn.Linear)]
    return [
        _linear(layer.weight, layer.bias, add, "" if layer is linear[-1] else "silu") for layer in linear
    ]  # fmt: skip


def _gates(lstm: nn.LSTM, add: Add) -> Description:
    """The four gates as one product of [inputs, h]."""
    input_weights, hidden_weights, input_bias, hidden_bias = lstm.all_weights[0]
    return _linear(torch.cat([input_weights, hidden_weights], 1), input_bias + hidden_bias, add)


@torch.no_grad()
def describe_mdnrnn(model: Predictor, add: Add) -> Description:
    """M, whichever network it is."""
    if isinstance(model, MdnRnn):
        order = model.component_order()
        return {
            "network": "paper",
            "latent": model.latent,
            "hidden": model.hidden,
            "mixtures": model.mixtures,
            "gates": _gates(model.lstm, add),
            "heads": _linear(model.heads.weight[order], model.heads.bias[order], add),
            "logSigma": list(LOG_SIGMA),
            "endWeight": model.end_weight,
            "rewardMean": float(model.reward_mean),
            "rewardStd": float(model.reward_std),
        }
    assert isinstance(model, RolloutNetwork)
    return {
        "network": "rollout",
        "latent": model.latent,
        "hidden": model.hidden,
        "gates": None if model.lstm is None else _gates(model.lstm, add),
        "change": _perceptron(model.change, add),
        "reward": _perceptron(model.reward.layers, add),
        "end": _perceptron(model.end, add),
        "bins": add(model.reward.bin_values),
        "zMean": add(model.z_mean),
        "zStd": add(model.z_std),
        "differenceStd": add(model.difference_std),
        "residualStd": add(model.residual_std),
        "rewardUnit": float(model.reward_unit),
        "noise": NOISE,
    }


def describe_controller(trained: TrainedController, add: Add) -> Description:
    """C with the parameters of its best validation."""
    model = trained.model
    return {
        "head": model.head,
        "inputs": model.inputs,
        "difference": model.difference,
        "previousAction": model.previous_action,
        "sampled": model.sampled,
        "ordered": list(model.ordered) if model.ordered else None,
        "opposed": list(model.opposed) if model.opposed else None,
        "serve": model.serve,
        "layers": _controller_layers(model, torch.from_numpy(trained.parameters), add),
        "serveSteps": SERVE_STEPS,
        "threshold": THRESHOLD,
        "mostOpposed": MOST_OPPOSED,
        "edge": EDGE,
    }


def _controller_layers(model: Controller, parameters: Tensor, add: Add) -> list[Description]:
    layers = model.split(parameters[None])
    described = []
    for number, (matrix, bias) in enumerate(layers):
        activation = "" if number == len(layers) - 1 else "silu" if model.layers else "tanh"
        scale = model.output_scale if number else 1.0
        described.append(_linear(matrix[0] * scale, bias[0] * scale, add, activation))
    return described
