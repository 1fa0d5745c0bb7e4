"""Environments named as `module:id`: the form of such a name, the import of the module, and what building raises.

Whatever goes wrong is one sentence with the real reason and the name as it was typed.
"""

import copy
import difflib
import importlib
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import gymnasium as gym
from gymnasium.envs.registration import EnvSpec

from wm.envs import process_state
from wm.errors import EnvironmentFault, MissingPackage, Stopped, UsageProblem, WmError

Result = TypeVar("Result")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ID = re.compile(r"([\w-]+/)?[\w-]+(\.[\w-]+)*")  # an id of gymnasium, its namespace and its version included
_NO_CHILDREN = "daemonic processes are not allowed to have children"  # multiprocessing's, in a worker
_LONGEST = 200  # characters of another's message


def require_form(name: str) -> None:
    """Raise UsageProblem if a name with a colon is not `module:id`."""
    module, colon, env_id = name.rpartition(":")
    if not colon or (_MODULE.fullmatch(module) and _ID.fullmatch(env_id) and not module.endswith(".py")):
        return
    file = module.replace("\\", "/").rpartition("/")[2]
    if file.endswith(".py") and _MODULE.fullmatch(file[:-3]) and _ID.fullmatch(env_id):
        reason = f"names a file; give the module, `{file[:-3]}:{env_id}`, and set PYTHONPATH to its folder."
    else:
        reason = "is not the name of an environment; expected module:id, such as my_games:Dot-v0."
    raise UsageProblem(f"{name!r} {reason}")


def build(env_id: str, name: str, entry_point: Any, options: dict[str, Any]) -> gym.Env[Any, Any]:
    """gymnasium's environment, from `entry_point` if there is one; `name` is the environment's name in messages.

    The process stays as it is (wm/envs/process_state.py). Raises MissingPackage, or UsageProblem with what importing or
    building raised.
    """
    with process_state.preserved(), process_state.learnt_torch():
        return process_state.learnt_context(_build, env_id, name, entry_point, options)


def _build(env_id: str, name: str, entry_point: Any, options: dict[str, Any]) -> gym.Env[Any, Any]:
    module, colon, registered = env_id.rpartition(":")
    env_spec: Any = registered
    if colon:
        _import(module, name)
        _require_registered(module, registered, name)
        env_spec = _registered_by(module, registered)
    if entry_point is not None:
        env_spec = copy.deepcopy(gym.spec(registered))
        env_spec.entry_point = entry_point
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # gymnasium's advice to the authors of an environment
            env = _construct(env_spec, options)
    except gym.error.DependencyNotInstalled as error:
        raise MissingPackage(f"{name} needs a package that is not installed: {one_line(error)}.") from None
    except ModuleNotFoundError as error:
        raise MissingPackage(
            f"{name} needs the package {error.name}, which is not installed; install it and try again."
        ) from None
    except (KeyboardInterrupt, Stopped):
        # A stop is no fault of the constructor.
        raise
    except BaseException as error:  # a constructor of somebody else may raise anything
        raise UsageProblem(f"{name} cannot be built; its constructor raised {one_line(error)}.") from None
    _require_actions(env, name)
    return env


def _construct(env_spec: Any, options: dict[str, Any]) -> gym.Env[Any, Any]:
    """gymnasium's environment. A constructor that complains of a render mode that was not given is given rgb_array."""
    try:
        return gym.make(env_spec, disable_env_checker=True, **options)
    except Exception as error:  # a constructor of somebody else may raise anything
        if "render_mode" in options or "render" not in one_line(error).lower():
            raise
        try:
            return _construct(env_spec, {**options, "render_mode": "rgb_array"})
        except Exception:
            raise error from None


def _require_actions(env: gym.Env[Any, Any], name: str) -> None:
    """Raise UsageProblem if the environment has no action space yet, or one of another package, such as gym's."""
    try:
        space: Any = env.action_space
    except Exception as error:  # a property of somebody else may raise anything
        problem = f"{name} has no action space: reading it raised {one_line(error)}"
    else:
        if isinstance(space, gym.Space):
            return
        kind = "None" if space is None else f"of type {type(space).__module__}.{type(space).__qualname__}"
        problem = f"the action space of {name} is {kind}, no space of gymnasium"
    raise UsageProblem(f"{problem}; set action_space in its constructor, to a Discrete or a Box of gymnasium.spaces.")


def _import(module: str, name: str) -> None:
    """Import the module that registers an environment."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if "is not a package" in str(error):
            reason = f"Python does not find the module {missing}; correct the name."
        elif module == missing or module.startswith(f"{missing}."):
            reason = f"Python does not find the module {missing}; install it, or set PYTHONPATH to the folder it is in."
        else:
            reason = f"its module {module} imports {missing}, which is not installed; install it and try again."
        raise MissingPackage(f"{name} cannot be imported: {reason}") from None
    except (KeyboardInterrupt, Stopped):
        raise
    except BaseException as error:  # a module of somebody else may raise anything
        raise UsageProblem(
            f"{name} cannot be imported: its module {module} raised {one_line(error)}; fix the module."
        ) from None


_specs: dict[tuple[str, str], EnvSpec] = {}  # by module and id, as they were when the module was first asked for


def _registered_by(module: str, env_id: str) -> EnvSpec:
    """What a module registers as this id. Another module may have registered the same id since, and gymnasium knows the
    latest alone; a module that was imported anew counts as it is now."""
    latest = gym.spec(env_id)
    first = _specs.setdefault((module, env_id), latest)
    if _module_of(latest.entry_point) == _module_of(first.entry_point):
        _specs[module, env_id] = latest
    return _specs[module, env_id]


def registered(env_id: str) -> EnvSpec | None:
    """What is registered as an id, which may name its module; None for an unknown one, and where its module is not
    imported."""
    module, colon, name = env_id.rpartition(":")
    if name not in gym.registry or (colon and module not in sys.modules):
        return None
    return _registered_by(module, name) if colon else gym.registry[name]


def _require_registered(module: str, env_id: str, name: str) -> None:
    """Raise UsageProblem if the module has registered no such id, with an id that it has registered."""
    if env_id in gym.registry:
        return
    top = module.partition(".")[0]
    own = [known for known, spec in gym.registry.items() if _module_of(spec.entry_point).partition(".")[0] == top]
    # Lower than difflib's own 0.6: a poor guess still shows what ids of this module look like.
    close = difflib.get_close_matches(env_id, own, n=1, cutoff=0.3) or own[:1]
    hint = f"did you mean {module}:{close[0]}?" if close else "it needs a call of gymnasium.register()."
    raise UsageProblem(f"{name} is unknown: the module {module} registers no environment {env_id!r}; {hint}")


def _module_of(entry_point: Any) -> str:
    """The module of an entry point, which is `module:class` or a class."""
    module = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "") or ""
    return module.partition(":")[0]


class Panic(Exception):
    """In one line, what an environment raised that is no Exception: a library in Rust panics with such."""


def raise_contained(error: BaseException) -> NoReturn:
    """Raise what an environment raised: itself, or a Panic where it is neither an Exception nor a wish to end, or would
    be taken for a fault of the disk or the end of a loop of ours."""
    misread = isinstance(error, OSError | StopIteration)
    if isinstance(error, Exception | KeyboardInterrupt | SystemExit) and not misread:
        raise error
    raise Panic(one_line(error)) from error


def guarded(name: str, call: Callable[[], Result]) -> Result:
    """The result of `call`, which plays the environment called `name` in this process. What that raises becomes an
    EnvironmentFault; a worker's becomes a WorkerFailed."""
    try:
        return call()
    except WmError:
        raise
    except (Exception, SystemExit) as error:  # an environment of somebody else may raise anything
        raise EnvironmentFault(f"{name} raised {one_line(error)} during an episode; fix the environment.") from error


def one_line(error: BaseException) -> str:
    """An exception's type and message on one line; the type alone where the message cannot be made."""
    if isinstance(error, Panic):
        return str(error)
    try:
        message = " ".join(str(error).split()).rstrip(".")
    except Exception:  # a __str__ of somebody else may raise anything
        message = ""
    if message == _NO_CHILDREN:
        message += " (workers play the environments, so let it use a thread or subprocess, not multiprocessing)"
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]} ..."
    return f"{type(error).__name__}: {message}" if message else type(error).__name__
