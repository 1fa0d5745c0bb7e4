"""A run's V, M and C as ONNX files, each compared with torch before it is written."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wm.artifacts import durable, manifest
from wm.artifacts.workspace import Workspace
from wm.errors import MissingInput, WmError
from wm.models import onnx_graphs
from wm.models.mdnrnn.network import MdnRnn
from wm.models.onnx_graphs import Graph
from wm.pretrained import TrainedController, TrainedMdnRnn, controller_memory, load_vae
from wm.run_models import load_all, load_pair
from wm.seeding import generator

TOLERANCE = 1e-4  # of a value, or of 1 where values are smaller
_CHECKED_ROWS = 5  # others than those a graph is traced with


def open_graphs(path: Path, agent: str) -> tuple[dict[str, Graph], dict[str, str]]:
    """The graphs of a run by file name, of V and, as far as they are trained, M and the C called `agent`; or those of
    a single artifact, where `path` is one. Also what their metadata says.

    Raises MissingInput without a V, and RecipeMismatch where V, M and C do not belong together.
    """
    run, only = (path.parent, path.name) if (path / manifest.NAME).is_file() else (path, "")
    agent = agent if only in ("", "vae", "mdnrnn") else only
    if not _exists(run, "vae"):
        raise MissingInput(
            f"{run} has no vae to export; give the folder of a run, such as runs/Pong, or train V first."
        )
    vae = load_vae(run / "vae", "")
    graphs = {"vae": {"encoder": onnx_graphs.encoder(vae.model), "decoder": onnx_graphs.decoder(vae.model)}}
    facts = {"environment": vae.env.name, "vae": vae.artifact.fingerprint}
    workspace = Workspace(vae.env.name, run, ())
    mdnrnn = None
    if only not in ("vae", "mdnrnn") and (agent != "controller" or _exists(run, agent)):
        _, mdnrnn, controller = load_all(workspace, agent)
        graphs[agent] = _of_controller(mdnrnn, controller)
        facts["controller"] = controller.artifact.fingerprint
    elif only == "mdnrnn" or (not only and _exists(run, "mdnrnn")):
        _, mdnrnn = load_pair(workspace)
    if mdnrnn is not None:
        graphs["mdnrnn"] = _of_mdnrnn(mdnrnn)
        space = json.dumps(mdnrnn.space.as_json())
        facts |= {"mdnrnn": mdnrnn.artifact.fingerprint, "action_space": space}
    chosen = graphs.values() if not only else [graphs[only]]
    return {name: graph for group in chosen for name, graph in group.items()}, facts


def _exists(run: Path, name: str) -> bool:
    return (run / name / manifest.NAME).is_file()


def _of_mdnrnn(mdnrnn: TrainedMdnRnn) -> dict[str, Graph]:
    """A step of M and, of the paper's network, the mixture it predicts."""
    graphs = {"mdnrnn": onnx_graphs.step(mdnrnn.model, mdnrnn.space.width)}
    return graphs | ({"mixture": onnx_graphs.mixture(mdnrnn.model)} if isinstance(mdnrnn.model, MdnRnn) else {})


def _of_controller(mdnrnn: TrainedMdnRnn, controller: TrainedController) -> dict[str, Graph]:
    """C, and the step of its memory where that is no trained M."""
    memory, parameters = controller_memory(mdnrnn, controller.config), torch.from_numpy(controller.parameters)
    width = 0 if memory is None else memory.hidden
    graphs = {"controller": onnx_graphs.policy(controller.model, parameters, mdnrnn.model.latent, width)}
    if memory is not None and memory is not mdnrnn.model:
        graphs["memory"] = onnx_graphs.step(memory, mdnrnn.space.width)
    return graphs


def write_graph(folder: Path, name: str, graph: Graph, facts: Mapping[str, str]) -> None:
    """Write `<name>.onnx`. Raises WmError if onnxruntime computes something else than torch."""
    data = onnx_graphs.to_onnx(graph, facts)
    for output, ours, theirs in compare(data, graph):
        error = np.abs(ours - theirs) / np.maximum(np.abs(ours), 1)
        if not error.max(initial=0) <= TOLERANCE:
            raise WmError(
                f"{name}.onnx gives another {output} in onnxruntime than in torch, by {error.max():.1e}; expected at "
                f"most {TOLERANCE:g}, so report this with the versions of `wm doctor`."
            )
    durable.write_bytes(folder / f"{name}.onnx", data)


def compare(data: bytes, graph: Graph) -> list[tuple[str, NDArray[np.float64], NDArray[np.float64]]]:
    """For random inputs the name of each output, and its values by torch and by onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # One thread, so that the sums are the same at each check.
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    # Any seed would do, as long as it is the same.
    random = generator(0, "onnx")
    inputs = {name: _random_like(example, random) for name, example in graph.inputs.items()}
    outputs = session.run(list(graph.outputs), {name: value.numpy() for name, value in inputs.items()})
    expected = graph.run(*inputs.values())
    return [
        (name, ours.double().numpy(), np.asarray(theirs, np.float64))
        for name, ours, theirs in zip(graph.outputs, expected, outputs, strict=True)
    ]


def _random_like(example: Tensor, random: np.random.Generator) -> Tensor:
    shape = (_CHECKED_ROWS, *example.shape[1:])
    if example.dtype == torch.uint8:
        return torch.from_numpy(random.integers(0, 256, shape, np.uint8))
    return torch.from_numpy(random.normal(size=shape).astype(np.float32))
