"""What of a run travels: the artifacts of one agent, and some of the episodes it was trained on.

Only files that a manifest lists travel, and of these only what a stage writes for others. A command keeps of a path
that leaves its folder the last name, so that nothing tells where on a machine it ran.
"""

import hashlib
import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from wm import model_json
from wm.artifacts import links, manifest, runs
from wm.artifacts.runs import Artifact
from wm.artifacts.workspace import Workspace
from wm.envs.registry import EnvConfig
from wm.episodes import selection
from wm.episodes.dataset import Dataset
from wm.episodes.parts import PartBuilder, root_files
from wm.episodes.schema import part_is_full, part_name
from wm.errors import BadData, MissingInput, RecipeMismatch, UsageProblem
from wm.pretrained import is_dreamer
from wm.sharing.contents import EPISODES, Contents, File, has_its_name, travels

_PROVENANCE = (
    *("render", "versions", "python", "machine", "commit", "device", "seed", "wall_seconds", "command", "finished"),
)
# The beginning of a path out of the working directory, or of an address.
_LEAVES = re.compile(r"([/\\~]|[A-Za-z]:[/\\]|\.\.([/\\]|$)|[a-z][a-z0-9+.-]+://)")
_CLUSTER = re.compile(r"dask:(?=.)")
_OPTION = re.compile(r"^(?:-*[A-Za-z][\w.-]*=)?")  # what may stand before a value in one word
_TEXT = (".json", ".jsonl")


def choose(run: Path, agent: str, without: Collection[str]) -> dict[str, Artifact]:
    """The artifacts of an agent by name, in the order in which they were made, besides those left out.

    Raises MissingInput if the agent or what it needs to play is not finished, BadData where a file is damaged or there
    is a link, RecipeMismatch where an artifact was made from another one than the run has."""
    if not run.exists():
        raise MissingInput(f"{run} does not exist; `wm ls` shows what there is.")
    links.refuse_below(run)
    dreamer = is_dreamer(run / agent)
    needed = {agent: "dreamer"} if dreamer else {"vae": "vae", "mdnrnn": "mdnrnn", agent: "controller"}
    artifacts = dict[str, Artifact]()
    for name, kind in needed.items():
        artifacts[name] = runs.load(run / name, kind, _command(run, name, kind, artifacts))
    latents = [name for name in artifacts["mdnrnn"].inputs if name.startswith("latents")] if not dreamer else []
    kinds = dict.fromkeys(latents, "latents") | {f"evaluation/{agent}": "evaluation", "evaluation/random": "evaluation"}
    kinds["dream" if agent == "controller" else f"dream-{agent}"] = "dream"
    if unknown := set(without) - kinds.keys():
        raise UsageProblem(f"--without is {min(unknown)!r}; expected one of {', '.join(kinds)}.")
    for name, kind in kinds.items():
        if name not in without and (run / name / manifest.NAME).is_file():
            artifacts[name] = runs.read(run / name, kind)
    for name, artifact in artifacts.items():
        if not has_its_name(name, artifact.manifest["kind"]):
            raise UsageProblem(f"{artifact.folder}: {name!r} is not a name on every system; train it under another.")
    require_related(artifacts, agent)
    return artifacts


def _command(run: Path, name: str, kind: str, artifacts: dict[str, Artifact]) -> str:
    """What trains an artifact of the run, for error messages; V, which is the first, tells the environment.
    Empty for V itself."""
    if not artifacts:
        return ""
    command = Workspace(env_of(artifacts, name).name, run, ()).command(f"train-{kind}")
    return command if name == kind else f"{command} --name {name}"


def require_related(artifacts: dict[str, Artifact], agent: str) -> None:
    """Raise RecipeMismatch where one of the artifacts was made from another one than stands beside it."""
    for name, artifact in artifacts.items():
        for source, fingerprint in artifact.inputs.items():
            beside = artifacts.get(agent if source in ("controller", "dreamer") else source)
            if beside is not None and beside is not artifact and beside.fingerprint != fingerprint:
                raise RecipeMismatch(
                    f"{artifact.folder} was made from another {source} than {beside.folder}; make it again, or leave "
                    f"it out with --without {name}."
                )


def env_of(artifacts: dict[str, Artifact], agent: str) -> EnvConfig:
    """The environment of a run, as V or the Dreamer has it."""
    if "vae" in artifacts:
        return model_json.read_env(artifacts["vae"])
    return model_json.read_env(artifacts[agent])


def artifact_files(artifact: Artifact) -> dict[str, bytes]:
    """The files of an artifact that travel, and their manifest, by relative name. Raises BadData for a damaged one."""
    names = filter(travels, artifact.manifest["files"])
    files = {name: artifact.read_bytes(name, manifest.LARGEST) for name in names}
    return files | {manifest.NAME: manifest.of(public_manifest(artifact), files)}


def public_manifest(artifact: Artifact) -> dict[str, Any]:
    """The manifest for others, without its list of files."""
    known = artifact.manifest["provenance"]
    provenance = {name: known[name] for name in _PROVENANCE if name in known}
    provenance["command"] = portable(str(known["command"]))
    body = {name: artifact.manifest[name] for name in ("kind", "fingerprint", "recipe", "metrics")}
    return {**body, "provenance": provenance}


def portable(command: str) -> str:
    """A command line with the last name of every address, and of every path that is absolute or leads up from the
    working directory, and without the addresses of clusters."""
    # A record that was edited by hand may have an open quote; then no command travels.
    try:
        words = shlex.split(command)
    except ValueError:  # not written by us
        return ""
    return shlex.join(_last_name(word) for word in words)


def _last_name(word: str) -> str:
    value = _OPTION.sub("", word, count=1)
    option = word.removesuffix(value)
    if cluster := _CLUSTER.match(value):
        return f"{option}{cluster[0]}ADDRESS"
    if not _LEAVES.match(value):
        return word
    name = re.split(r"[/\\]", value.rstrip("/\\"))[-1]
    return f"{option}{name if name and not name.startswith('~') else '.'}"  # ~name is a user


def open_episodes(
    path: Path, artifacts: dict[str, Artifact], env: EnvConfig, episodes: str
) -> tuple[Dataset | None, int]:
    """The dataset that V was trained on, limited to the episodes asked for: a number or `all`; None for no episodes.
    Also how many V was trained on.

    Raises RecipeMismatch for a dataset of another environment, MissingInput where episodes are missing."""
    trained_on = int(artifacts["vae"].metrics["episodes"]) if "vae" in artifacts else 0
    if episodes != "all" and not selection.is_number(episodes):
        raise UsageProblem(f"--episodes is {episodes[:80]!r}; expected a number or all.")
    count = trained_on if episodes == "all" else min(int(episodes), trained_on)
    if count == 0:
        return None, trained_on
    if not (path / manifest.NAME).is_file():
        raise MissingInput(f"{path} is no dataset; give V's with --data, or share none with --episodes 0.")
    dataset = Dataset.open(path, count)
    if difference := env.difference(EnvConfig.of_recipe(dataset.recipe)):
        raise RecipeMismatch(
            f"{path} has {difference[0]} {difference[2]} but V was trained with {difference[1]}; give V's dataset with "
            "--data, or --episodes 0."
        )
    if dataset.missing:
        raise MissingInput(f"{path} lacks some of its first {count} episodes; give fewer --episodes, or 0.")
    return dataset, trained_on


def episode_files(dataset: Dataset) -> Iterator[tuple[str, bytes]]:
    """The files of a dataset of these episodes alone, by relative name."""
    yield from root_files(dataset.recipe).items()
    builder = PartBuilder(Path(), dataset.recipe, 0)
    for episodes in selection.read(dataset, selection.select(dataset, "all")):
        for episode in episodes:
            builder.add(episode.pack())
            if builder.last == dataset.upto or part_is_full(builder.last, builder.rows):
                folder = part_name(builder.first, builder.last)
                yield from ((f"{folder}/{name}", data) for name, data in builder.files().items())
                builder = PartBuilder(Path(), dataset.recipe, builder.last)


def bundle(
    artifacts: dict[str, Artifact], env: str, agent: str, dataset: Dataset | None, trained_on: int, max_size: int
) -> tuple[Contents, dict[str, bytes]]:
    """The contents of a shared run, and its files without them. Raises UsageProblem if they are larger than
    `max_size` bytes."""
    listed = [entry["size"] for a in artifacts.values() for name, entry in a.manifest["files"].items() if travels(name)]
    _require_size(sum(listed), max_size)  # before anything is read
    files = {
        f"{name}/{file}": data
        for name, artifact in artifacts.items()
        for file, data in artifact_files(artifact).items()
    }
    if dataset is not None:
        files |= {f"{EPISODES}/{name}": data for name, data in episode_files(dataset)}
    _require_size(sum(map(len, files.values())), max_size)
    kinds = {name: str(artifact.manifest["kind"]) for name, artifact in artifacts.items()}
    digests = {name: File(len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}
    return Contents(env, agent, kinds, dataset.upto if dataset else 0, trained_on, digests), files


def _require_size(size: int, max_size: int) -> None:
    if size > max_size:
        raise UsageProblem(
            f"the run has {size:,} bytes, more than --max-size {max_size:,}; give fewer --episodes, leave out latents "
            "with --without latents, or raise it."
        )


def require_private(files: dict[str, bytes], private: Sequence[str]) -> None:
    """Raise BadData if a text among the files has one of these paths of the machine."""
    for name, data in files.items():
        for text in private:
            if name.endswith((*_TEXT, ".md")) and os.fsencode(text) in data:
                raise BadData(f"{name} has the path {text}, which others need not know; leave it out with --without.")
