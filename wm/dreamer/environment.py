"""The environment a Dreamer plays while it learns."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from wm.actions import ActionSpace
from wm.envs.registry import EnvConfig, require_choice_of_frames
from wm.episodes.dataset import read_root
from wm.errors import UsageProblem
from wm.rollouts.collection import require_survival, with_instances
from wm.runtime import Runtime
from wm.settings import DreamerSettings


def playing_env(
    name: str, settings: DreamerSettings, data: Sequence[Path], runtime: Runtime
) -> tuple[EnvConfig, ActionSpace]:
    """The environment with the frames and the limit of the settings, else of the collected episodes in `data`, and
    with the number of its instances that a process may play; its actions. Raises UsageProblem if one process cannot
    play as many instances as training needs, and EnvironmentFault for one that ends its process."""
    config = EnvConfig(
        name,
        settings.size,
        settings.gray,
        observation=settings.observation,
        frames=settings.frames,
        max_steps=settings.max_steps,
        mask=settings.mask,
    )
    config.require_channels()
    require_choice_of_frames(config)
    comparison = None
    if data:
        collected = EnvConfig.of_recipe(read_root(data[0], name))
        frames = collected.frames if config.frames == "auto" else config.frames
        config = replace(
            config,
            frames=frames,
            max_steps=config.shorter(collected.max_steps),
            envs_per_process=collected.envs_per_process,
        )
    else:
        comparison = require_survival(config, runtime)
    with closing(config.make()) as env:
        if not config.spec().is_known:
            why = "as its dataset says" if config.envs_per_process else "they share state"
            config = with_instances(config, env, comparison, runtime.log)  # also of one instance: scores have eight
            instances = settings.num_envs * (1 if settings.target_return is None else 2)  # validations have their own
            _require_instances(config, instances, why)
        return config, ActionSpace.of(env.action_space)


def _require_instances(config: EnvConfig, instances: int, why: str) -> None:
    """Raise UsageProblem if so many instances of the environment cannot be played in one process."""
    if 0 < (allowed := config.envs_per_process) < instances:
        raise UsageProblem(
            f"{config.name} can have {allowed} instance{'s' * (allowed > 1)} in a process ({why}) but training plays "
            f"{instances}; give --num-envs {allowed}, and leave out --target-return."
        )
