"""The import table of ARCHITECTURE.md, checked."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from stages.cli import TABLE

ROOT = Path(__file__).resolve().parent.parent
FOUNDATION = {"errors", "seeding", "arguments", "actions", "masks", "ranks", "runtime", "units", "stats", "extras"}
ALLOWED = {
    "errors": set[str](),
    "seeding": {"errors"},
    "arguments": {"errors"},
    "actions": {"arguments", "errors"},
    "masks": set[str](),
    "ranks": {"errors"},
    "runtime": {"errors", "ranks"},
    "units": {"errors"},
    "extras": {"errors"},
    "stats": {"seeding"},
    "settings": set[str](),
    "artifacts": set[str](),
    "envs": set[str](),
    "models": set[str](),
    "episodes": {"artifacts", "settings"},
    "telemetry": {"artifacts"},
    "training": {"artifacts", "episodes", "models", "telemetry", "settings"},
    "installation": {"envs", "training"},
    "model_json": {"artifacts", "envs"},
    "pretrained": {"artifacts", "envs", "episodes", "model_json", "models", "training"},
    "run_models": {"artifacts", "model_json", "models", "pretrained"},
    "rollouts": {"artifacts", "envs", "episodes", "models", "pretrained", "run_models", "telemetry"},
    "dreams": {"artifacts", "episodes", "models", "pretrained"},
    "evaluation": {
        "artifacts",
        "dreams",
        "envs",
        "episodes",
        "models",
        "pretrained",
        "rollouts",
        "run_models",
        "settings",
        "training",
    },
    "world": {
        "artifacts",
        "dreams",
        "envs",
        "episodes",
        "evaluation",
        "model_json",
        "models",
        "pretrained",
        "rollouts",
        "run_models",
    },
    "evolution": {
        "artifacts",
        "dreams",
        "episodes",
        "evaluation",
        "models",
        "pretrained",
        "rollouts",
        "settings",
        "telemetry",
        "training",
    },
    "policy_gradient": {
        "artifacts",
        "dreams",
        "envs",
        "episodes",
        "evolution",
        "models",
        "pretrained",
        "rollouts",
        "settings",
        "telemetry",
        "training",
    },
    "report": {
        "artifacts",
        "dreams",
        "envs",
        "episodes",
        "evolution",
        "model_json",
        "models",
        "pretrained",
        "rollouts",
        "run_models",
        "settings",
        "telemetry",
    },
    "sharing": {
        "artifacts",
        "envs",
        "episodes",
        "model_json",
        "pretrained",
        "report",
    },
    "pipeline": {
        "artifacts",
        "dreamer",
        "dreams",
        "envs",
        "episodes",
        "evaluation",
        "evolution",
        "models",
        "policy_gradient",
        "pretrained",
        "report",
        "rollouts",
        "run_models",
        "settings",
        "training",
    },
    "sweeps": {"artifacts", "episodes", "settings", "telemetry"},
    "dreamer": {
        "artifacts",
        "envs",
        "episodes",
        "models",
        "pretrained",
        "report",
        "rollouts",
        "settings",
        "telemetry",
        "training",
    },
}


@cache
def parsed(path: Path) -> ast.Module:
    """A module of ours, which several tests look through."""
    return ast.parse(path.read_text())


@cache
def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            found.add(node.module or "")
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


def module_of(path: Path) -> str:
    """`wm/dreams/env.py` -> wm.dreams.env; a package is its __init__."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def test_every_part_of_the_library_has_a_row_in_the_table() -> None:
    parts = {path.stem for path in (ROOT / "wm").iterdir() if not path.name.startswith(("_", "py.typed"))}
    assert parts == set(ALLOWED)


def test_imports_follow_the_table() -> None:
    for path in (ROOT / "wm").rglob("*.py"):
        part = path.relative_to(ROOT / "wm").parts[0].removesuffix(".py")
        for name in imports(path) - {"wm.__version__"}:
            assert not name.startswith("stages"), f"{path} imports stages"
            if name.startswith("wm.") and part != "__init__":
                wanted = name.split(".")[1]
                allowed = {part} | ALLOWED[part] | (FOUNDATION if part not in FOUNDATION else ALLOWED[part])
                assert wanted in allowed, f"{path} imports {name}"


def test_the_table_has_no_circle() -> None:
    order: list[str] = []
    while remaining := [part for part in ALLOWED if part not in order]:
        free = [part for part in remaining if ALLOWED[part] <= {part, *order}]
        assert free, f"a circle among {remaining}"
        order += free


def test_every_module_can_be_imported_first() -> None:
    """A circle within a part shows when its modules are imported in another order."""
    graph = {module_of(path): imports(path) for path in (ROOT / "wm").rglob("*.py")}
    order: set[str] = set()
    while remaining := graph.keys() - order:
        free = {module for module in remaining if not (graph[module] & remaining) - {module}}
        assert free, f"a circle among {sorted(remaining)}"
        order |= free


def test_the_library_neither_prints_nor_parses_nor_reads_the_clock_or_the_working_directory() -> None:
    for path in (ROOT / "wm").rglob("*.py"):
        text = path.read_text()
        clock = {"time"} if path == ROOT / "wm" / "runtime.py" else set()  # the Runtime is what has one
        found = imports(path) - clock
        if "datetime.timedelta" in found and not {"datetime.datetime", "datetime.date"} & found:
            found.remove("datetime")  # a length of time reads no clock
        if {name for name in found if name.startswith("random.")} == {"random.getstate"}:
            found.remove("random")  # the state of a generator from which nothing is drawn
        assert not {"click", "argparse", "time", "datetime", "random"} & found, path
        if path.name == "process_state.py":  # which puts back a working directory that an environment has changed
            text = text.replace("os.getcwd()", "")
        assert not re.search(r"\bprint\(|\.cwd\(|getcwd|np\.random\.seed", text), path


def test_only_one_place_opens_files_for_writing() -> None:
    allowed = {"durable.py", "locks.py", "metrics_log.py"}
    for path in (ROOT / "wm").rglob("*.py"):
        if path.name in allowed:
            continue
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
                mode = node.args[1] if len(node.args) > 1 else None
                assert isinstance(mode, ast.Constant), path
                assert mode.value == "rb", path


def test_only_one_place_removes_files_and_folders() -> None:
    for path in [*(ROOT / "wm").rglob("*.py"), *(ROOT / "stages").rglob("*.py")]:
        if path.name != "durable.py":
            assert not re.search(r"rmtree|\.unlink\(|\.rmdir\(|os\.remove", path.read_text()), path


def test_only_one_place_parses_json_and_one_toml() -> None:
    """Elsewhere a value could have any type."""
    parsers = {"json.load": "json_reader.py", "tomllib.load": "sources.py"}
    for path in [*(ROOT / "wm").rglob("*.py"), *(ROOT / "stages").rglob("*.py")]:
        for parser, allowed in parsers.items():
            assert path.name == allowed or f"{parser}(" not in path.read_text().replace("loads(", "load("), path


LOOPS = {"_Fit"}  # the training of V and of M, whose typed configuration the settings are
MOST_VALUES = 3


def assigned(node: ast.AST) -> Iterator[tuple[str, str]]:
    """What assignments below `node` give to which name: `self.a, b = c, d` -> (self.a, c), (b, d)."""
    for assignment in ast.walk(node):
        if isinstance(assignment, ast.Assign):
            for target in assignment.targets:
                pairs = [(target, assignment.value)]
                if isinstance(target, ast.Tuple) and isinstance(assignment.value, ast.Tuple):
                    pairs = list(zip(target.elts, assignment.value.elts, strict=False))
                yield from ((ast.unparse(to), ast.unparse(value)) for to, value in pairs)


def uses(scope: ast.AST, name: str) -> tuple[set[str], bool]:
    """The fields that are read from an object below `scope`, and whether it is an argument of a call."""
    names, fields, passed = {name}, set[str](), False
    while more := {to for to, value in assigned(scope) if value in names} - names:
        names |= more
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in names:
            fields.add(node.attr)
        elif isinstance(node, ast.Call):
            arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
            passed = passed or any(ast.unparse(argument) in names for argument in arguments)
    return fields, passed


def few_values(tree: ast.Module) -> Iterator[str]:
    """Functions and classes that take a stage's settings, read few of their fields and pass them to nobody."""
    for owner in ast.walk(tree):
        for function in ast.iter_child_nodes(owner):
            if not isinstance(function, ast.FunctionDef):
                continue
            kept = isinstance(owner, ast.ClassDef) and function.name == "__init__"
            scope: Any = owner if kept else function  # what a constructor keeps, methods read
            for argument in [*function.args.args, *function.args.kwonlyargs]:
                if argument.annotation is None or not re.search(r"\wSettings\b", ast.unparse(argument.annotation)):
                    continue
                fields, passed = uses(scope, argument.arg)
                if len(fields) <= MOST_VALUES and not passed:
                    yield f"{scope.name} reads {', '.join(sorted(fields)) or 'nothing'} of {argument.arg}"


def test_functions_take_values_and_no_settings_of_which_they_read_a_few() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {use}"
        for path in sorted((ROOT / "wm").rglob("*.py"))
        if path.relative_to(ROOT / "wm").parts[0] not in ("pipeline", "settings")
        for use in few_values(parsed(path))
        if use.split()[0] not in LOOPS
    ]
    assert found == []


@pytest.mark.parametrize(
    ("code", "few"),
    [
        ("def f(settings: VaeSettings): return settings.steps, settings.batch, settings.latent", True),
        ("def f(*, settings: VaeSettings | None): return settings.steps", True),
        ("def f(settings: VaeSettings): return settings.a, settings.b, settings.c, settings.d", False),
        ("def f(settings: VaeSettings): return settings.steps + g(1, s=settings)", False),
        ("def f(settings: VaeSettings): return g(settings.steps)", True),
        ("class A:\n def __init__(self, s: S.VaeSettings): self._s, self.a = s, 1\n def f(self): self._s.a", True),
        ("class A:\n def __init__(self, s: VaeSettings): self._s = s\n def f(self): g(self._s)", False),
    ],
)
def test_few_values_are_those_of_a_function_or_of_an_object_that_keeps_the_settings(code: str, few: bool) -> None:
    assert bool(list(few_values(ast.parse(code)))) == few


def test_help_needs_no_torch() -> None:
    text = (ROOT / "stages" / "cli.py").read_text()
    top = ast.parse(text).body
    names = {name for node in top if isinstance(node, ast.Import | ast.ImportFrom) for name in [ast.unparse(node)]}
    assert not any("torch" in name or "stages.train" in name for name in names)


VAGUE = {"found", "told", "there", "held"}


def names_in(path: Path) -> Iterator[str]:
    """The names that a module gives: of functions, classes, arguments, variables, attributes and imports."""
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            yield node.name or ""
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.asname or node.name


def test_names_say_what_they_hold() -> None:
    """`found` and the like hold anything; the noun of what it is says more."""
    for folder in ("wm", "stages", "benchmarks"):
        for path in (ROOT / folder).rglob("*.py"):
            vague = {name for name in names_in(path) if name.strip("_") in VAGUE}
            assert not vague, f"{path} has {', '.join(sorted(vague))}"


FRAME = {"cli", "options", "parameter_types", "console", "progress", "session"}


def test_stages_are_the_commands_and_the_frame_of_the_command_line() -> None:
    commands = {name.replace("-", "_") for name in TABLE if name != "help"}
    modules = {path.name.removesuffix(".py") for path in (ROOT / "stages").iterdir() if not path.name.startswith("_")}
    assert modules == commands | FRAME
    count = len(list((ROOT / "stages").glob("[!_]*.py")) + list((ROOT / "stages" / "curriculum").glob("*.py")))
    assert count <= 33  # each further command is a recipe over a package of the library


def test_only_the_frame_is_imported_by_more_than_one_stage() -> None:
    importers: dict[str, set[str]] = {}
    for path in (ROOT / "stages").rglob("*.py"):
        importer = path.relative_to(ROOT / "stages").parts[0].removesuffix(".py")
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "stages" and len(parts) > 1 and parts[1] != importer:
                importers.setdefault(parts[1], set()).add(importer)
    shared = {name: sorted(users) for name, users in importers.items() if len(users) > 1 and name not in FRAME}
    assert shared == {}


def test_a_list_of_runs_and_a_report_need_no_torch() -> None:
    code = "import sys, wm.report.inventory, wm.report.run_chapter; print(*{'torch', 'cma'} & set(sys.modules))"
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (completed.returncode, completed.stdout) == (0, "\n"), completed.stderr
