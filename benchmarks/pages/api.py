"""docs/api.md, from the docstrings of what `import wm` offers; benchmarks.pages.reference writes it."""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import Any

import wm
from wm.dreams.env import DreamEnv, DreamVectorEnv
from wm.world.real_env import RealEnv

ENVIRONMENTS = (DreamEnv, DreamVectorEnv, RealEnv)  # what a World makes
_HEAD = """# Python reference

What `import wm` offers, from its docstrings; [Python](python.md) has an example for each name. `make docs` writes this
page.
"""
_ENVIRONMENTS = """## Environments

What `World.env`, `World.vector_env` and `World.real_env` return.
"""


def api_page() -> str:
    """docs/api.md."""
    parts = [_HEAD, *(_entry(f"wm.{name}", getattr(wm, name)) for name in public_names())]
    parts += [_ENVIRONMENTS, *(f"### {kind.__name__}\n\n{_text(kind)}" for kind in ENVIRONMENTS)]
    return "\n".join(parts)


_FIRST = ("load", "World", "collect", "train_vae", "train_mdnrnn", "train_controller", "Result")


def public_names() -> list[str]:
    """The names of `import wm`: opening a run, then making one, then the others."""
    return [*_FIRST, *(name for name in wm.__all__ if name not in _FIRST)]


def public_members(kind: type) -> Iterator[tuple[str, Any]]:
    """Methods and properties of a class with their functions, in the order of its source."""
    for name, member in vars(kind).items():
        function = getattr(member, "fget", None) or getattr(member, "func", None) or member
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield name, member


def _entry(title: str, value: Any) -> str:
    if not inspect.isclass(value):
        return f"## {title}\n\n{_signature(title, value)}\n{_text(value)}"
    parts = [f"## {title}\n\n{_text(value)}"]
    for name, member in public_members(value):
        heading = f"### {value.__name__}.{name}\n\n"
        function = getattr(member, "fget", None) or getattr(member, "func", None)
        signature = f"```\n{name}: {_returns(function)}\n```\n" if function else _signature(name, member)
        parts.append(f"{heading}{signature}\n{_text(function or member)}")
    return "\n".join(parts)


def _definition(function: Any) -> ast.FunctionDef:
    definition = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(definition, ast.FunctionDef)
    return definition


def _returns(function: Any) -> str:
    returns = _definition(function).returns
    return ast.unparse(returns) if returns else ""


def _signature(name: str, function: Any) -> str:
    """The call as it stands in the source, an argument a line where it is long."""
    arguments = [argument for argument in _arguments(_definition(function).args) if argument != "self"]
    line = f"{name}({', '.join(arguments)}) -> {_returns(function)}"
    if len(line) > 100:
        body = "".join(f"    {argument},\n" for argument in arguments)
        line = f"{name}(\n{body}) -> {_returns(function)}"
    return f"```\n{line}\n```\n"


def _arguments(arguments: ast.arguments) -> Iterator[str]:
    defaults = [None] * (len(arguments.args) - len(arguments.defaults)) + list(arguments.defaults)
    pairs = zip(arguments.args, defaults, strict=True)
    by_name = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    yield from (_argument(argument, default) for argument, default in pairs)
    if arguments.kwonlyargs:
        yield "*"
    yield from (_argument(argument, default) for argument, default in by_name)
    if arguments.kwarg:
        yield f"**{_argument(arguments.kwarg, None)}"


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    text = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    return text + (f" = {ast.unparse(default)}" if default else "")


def _text(value: Any) -> str:
    """A docstring, each paragraph on one line."""
    paragraphs = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs) + "\n"
