"""Runs that were published to do harm: one sentence, nothing half-written, nothing outside opened."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.sharing.conftest import Answer, listed, nothing_arrived, other_seed, relist, reseal
from wm.artifacts import manifest
from wm.errors import BadData
from wm.sharing import receive
from wm.sharing.contents import NAME
from wm.sharing.folder import FolderPlace

WEIGHTS = "vae/weights.safetensors"
SECRET = b"of somebody else"


def link_file(shared: Path) -> None:
    (shared.parent / "secret").write_bytes(SECRET)
    (shared / "vae" / "model.json").unlink()
    (shared / "vae" / "model.json").symlink_to(shared.parent / "secret")


def link_folder(shared: Path) -> None:
    shutil.move(shared / "vae", shared.parent / "elsewhere")
    (shared / "vae").symlink_to(shared.parent / "elsewhere")


def link_list(shared: Path) -> None:
    shutil.move(shared / NAME, shared.parent / "secret")
    (shared / NAME).symlink_to(shared.parent / "secret")


def pipe(shared: Path) -> None:
    (shared / "vae" / "loss.png").unlink()
    os.mkfifo(shared / "vae" / "loss.png")


def flip(shared: Path) -> None:
    data = bytearray((shared / WEIGHTS).read_bytes())
    data[-1] ^= 1
    (shared / WEIGHTS).write_bytes(data)


def truncate(shared: Path) -> None:
    os.truncate(shared / WEIGHTS, 1000)


def missing(shared: Path) -> None:
    (shared / WEIGHTS).unlink()


def extra(shared: Path) -> None:
    (shared / "vae" / "setup.py").write_text("import os")


def deep(shared: Path) -> None:
    (shared / Path(*"abcdefgh")).mkdir(parents=True)


def unreadable_list(shared: Path) -> None:
    (shared / NAME).write_bytes(b"\xff{")


def edited_list(shared: Path) -> None:
    (shared / NAME).write_bytes((shared / NAME).read_bytes().replace(b'"episodes": 4', b'"episodes": 5'))


def endless_list(shared: Path) -> None:
    (shared / NAME).write_bytes(b" " * (2 << 20))


def many_files(shared: Path) -> None:
    entry = {"size": 0, "sha256": "0" * 64}
    relist(shared, files={f"latents/latents.zarr/means/c.{number}": entry for number in range(5000)})


def unlisted_in_manifest(shared: Path) -> None:
    """The list of contents has it, the artifact's manifest has not."""
    (shared / "vae" / "whitener-1.npy").write_bytes(b"x")
    relist(shared)


def infinite_weights(shared: Path) -> None:
    tensors = load_file(shared / WEIGHTS)
    tensors[next(iter(tensors))].view(-1)[0] = torch.nan
    save_file(tensors, shared / WEIGHTS)
    reseal(shared / "vae")
    relist(shared)


def other_model(shared: Path) -> None:
    reseal(shared / "mdnrnn", recipe=other_seed(shared / "mdnrnn"))
    relist(shared)


def other_recipe(shared: Path) -> None:
    fingerprint = manifest.read_json(shared / "mdnrnn" / manifest.NAME)["fingerprint"]
    reseal(shared / "mdnrnn", recipe=other_seed(shared / "mdnrnn"), fingerprint=fingerprint)
    relist(shared)


def wrong_metrics(shared: Path) -> None:
    body = manifest.read_json(shared / "controller" / manifest.NAME)
    reseal(shared / "controller", metrics=body["metrics"] | {"validation_return": "<script>"})
    relist(shared)


def edited_log(shared: Path) -> None:
    path = shared / "vae" / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"step": 0', b'"step": "<b>"'))
    reseal(shared / "vae")
    relist(shared)


def endless_latents(shared: Path) -> None:
    path = shared / "latents" / "latents.zarr" / "zarr.json"
    group = json.loads(path.read_text())
    group["attributes"]["rows"] = 1 << 31
    path.write_text(json.dumps(group))
    reseal(shared / "latents")
    relist(shared)


def other_environment(shared: Path) -> None:
    relist(shared, env="Pong")


def fewer_episodes(shared: Path) -> None:
    relist(shared, episodes=3)


def damaged_episodes(shared: Path) -> None:
    (part,) = (shared / "episodes.zarr").glob("part-*")
    path = part / "rewards" / "c.0"
    path.write_bytes(path.read_bytes()[::-1])
    relist(shared)


def link_of_a_forged_kind(shared: Path) -> None:
    relist(shared, artifacts=listed(shared)["artifacts"] | {"archive": "controller"})


def controller_called_vae(shared: Path) -> None:
    relist(shared, artifacts=listed(shared)["artifacts"] | {"vae": "controller"})


def no_agent(shared: Path) -> None:
    relist(shared, agent="dream")


HOSTILE: dict[Callable[[Path], None], str] = {
    link_file: "is a link",
    link_folder: "is a link",
    link_list: "is a link",
    pipe: "is a pipe or a device",
    flip: "is not what shared/contents.json says",
    truncate: "is of 1000 bytes",
    missing: "is missing",
    extra: "'vae/setup.py', which contents.json does not list",
    deep: "deeper than",
    unreadable_list: "is not JSON",
    edited_list: "does not match its own checksum",
    endless_list: "is larger than",
    many_files: "lists 5000 files",
    unlisted_in_manifest: "has other files than its manifest lists",
    infinite_weights: "nan",
    other_model: "was made from another mdnrnn",
    other_recipe: "mdnrnn/manifest.json: fingerprint is",
    wrong_metrics: "metrics.validation_return",
    edited_log: "metrics.jsonl",
    endless_latents: "bytes of memory",
    other_environment: "says Pong",
    fewer_episodes: "has 4 episodes",
    damaged_episodes: "does not match its checksum",
    link_of_a_forged_kind: "a controller called 'archive'",
    controller_called_vae: "a controller called 'vae'",
    no_agent: "has no agent 'dream'",
}


@pytest.mark.parametrize("spoil", HOSTILE, ids=lambda spoil: spoil.__name__)
def test_a_hostile_run_is_one_sentence_and_leaves_nothing(
    spoil: Callable[[Path], None], shared: Path, answer: Answer
) -> None:
    spoil(shared)
    sentence = answer("pull", "shared", code=65)
    assert HOSTILE[spoil] in sentence
    assert ".tmp" not in sentence, "it names the place, not where it was staged"
    assert nothing_arrived(shared.parent)


def test_nothing_is_written_outside(shared: Path, answer: Answer) -> None:
    (shared.parent / "secret").write_bytes(SECRET)
    entry = {"size": len(SECRET), "sha256": manifest.sha256_file(shared.parent / "secret")}
    relist(shared, files=listed(shared)["files"] | {"../secret": entry, "../runs/x": entry})
    assert "lists '../runs/x', which is no file of a run" in answer("pull", "shared", code=65)
    assert nothing_arrived(shared.parent)


def test_a_huge_file_is_refused_before_anything_is_copied(shared: Path, answer: Answer) -> None:
    os.truncate(shared / WEIGHTS, 1 << 40)  # without a block on the disk
    files = listed(shared)["files"] | {WEIGHTS: {"size": 1 << 40, "sha256": "0" * 64}}
    relist_only(shared, files)
    assert "more than --max-size 200,000,000" in answer("pull", "shared", code=64)
    assert not (shared.parent / "runs").exists()


def relist_only(shared: Path, files: dict[str, Any]) -> None:
    (shared / NAME).write_bytes(manifest.sealed(listed(shared) | {"files": files}))


class Growing(FolderPlace):
    """A place whose files are longer when they are read than they were when they were listed."""

    taken = 0

    def read(self, file: str) -> Any:
        if file != WEIGHTS:
            yield from super().read(file)
            return
        while True:
            Growing.taken += 1
            yield bytes(1 << 16)


def test_a_file_without_an_end_is_read_no_further_than_the_list_says(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from wm.runtime import Runtime

    monkeypatch.chdir(shared.parent)
    with pytest.raises(BadData, match=r"weights\.safetensors is not what"):
        receive.pull(Growing(Path("shared")), None, None, 10**9, Runtime(lambda: 0.0))
    assert Growing.taken <= 2 + listed(shared)["files"][WEIGHTS]["size"] // (1 << 16)
    assert nothing_arrived(shared.parent)
