"""What is known of some environments by name: labels behind the pixels, a renderer, a head for C, the FIRE action."""

from dataclasses import dataclass

from wm.envs import labels


@dataclass(frozen=True)
class EnvSpec:
    """An environment: gymnasium's id of it, and the package and `pip install` argument it needs.

    `renderer` is our own one, as `module:class`; `has_fast_renderer` says whether it takes `fast`. `head` is C's, and
    `ordered_actions` what an ordered head chooses from, least to most; `opposed` are two dimensions of a box of which
    only one is to be above 0, gas and brake. `fire_action` starts play after a reset or a
    lost life. `random_steps` is about how long an episode of random play lasts. `brownian_low` are lower bounds of the
    brownian policy where they differ from the action space's. A training episode is truncated after `max_idle` steps
    without a positive reward (0: never). `protocol` is quoted next to scores.
    """

    name: str
    env_id: str
    package: str
    pip: str
    probe: labels.Probe | None = None
    head: str = "auto"
    ordered_actions: tuple[int, int, int] | None = None
    opposed: tuple[int, int] | None = None
    fire_action: int | None = None
    renderer: str = ""
    has_fast_renderer: bool = False
    random_steps: int = 1000
    brownian_low: tuple[float, ...] | None = None
    max_idle: int = 0
    protocol: str = ""

    @property
    def distinct_actions(self) -> tuple[int, ...] | None:
        """The actions that differ in what they do, where those of an ordered head and a serve are all of them.

        Pong has six, of which three repeat the others. M learns from random play what each action does. With three it
        has twice as many steps of each: in the dream preset its squared error 15 steps ahead falls from 0.36 of a
        linear prediction's to 0.26.
        """
        if self.ordered_actions is None:
            return None
        serve = () if self.fire_action is None else (self.fire_action,)
        return tuple(sorted((*self.ordered_actions, *serve)))

    @property
    def is_atari(self) -> bool:
        """Whether the Arcade Learning Environment runs it."""
        return self.env_id.startswith("ALE/")

    @property
    def is_known(self) -> bool:
        """Whether it is known by name, or an Atari game: its episodes end, and its instances share nothing."""
        return self.is_atari or self.name in KNOWN_ENVS

    @property
    def has_both_action_spaces(self) -> bool:
        """Whether the environment takes `continuous=True|False`."""
        return self.env_id.startswith(("LunarLander", "CarRacing"))


_BOX2D = "'gymnasium[box2d]'"
_CLASSIC = "'gymnasium[classic-control]'"
ATARI_PROTOCOL = "frame skip 4, sticky actions 0.25"
NO_STICKY_PROTOCOL = "frame skip 4, no sticky actions, 1 to 30 no-ops at the start"
ATARI_RENDERER = "wm.envs.renderers.atari:AtariRenderer"


def _by_name(*specs: EnvSpec) -> dict[str, EnvSpec]:
    return {spec.name: spec for spec in specs}


# Actions of Atari's reduced sets: 0 NOOP, 1 FIRE, 2 RIGHT (Pong's up), 3 LEFT (Pong's down).
KNOWN_ENVS = _by_name(
    EnvSpec(
        "Pong",
        "ALE/Pong-v5",
        package="ale_py",
        pip="ale-py",
        probe=labels.pong,
        renderer=ATARI_RENDERER,
        head="ordered",
        ordered_actions=(3, 0, 2),
        random_steps=1000,
        protocol=ATARI_PROTOCOL,
    ),
    EnvSpec(
        "Breakout",
        "ALE/Breakout-v5",
        package="ale_py",
        pip="ale-py",
        probe=labels.breakout,
        renderer=ATARI_RENDERER,
        head="ordered",
        ordered_actions=(3, 0, 2),
        fire_action=1,
        random_steps=260,
        protocol=ATARI_PROTOCOL,
    ),
    EnvSpec(
        "LunarLander",
        "LunarLander-v3",
        package="Box2D",
        pip=_BOX2D,
        probe=labels.lunar_lander,
        renderer="wm.envs.renderers.lunar_lander:LunarLanderRenderer",
        has_fast_renderer=True,
        random_steps=110,
        protocol="1000-step limit",
    ),
    EnvSpec(
        "CarRacing",
        "CarRacing-v3",
        package="Box2D",
        pip=_BOX2D,
        probe=labels.car_racing,
        renderer="wm.envs.renderers.car_racing:CarRacingRenderer",
        has_fast_renderer=True,
        opposed=(1, 2),
        random_steps=1001,
        max_idle=100,
        brownian_low=(
            -1.0,
            -0.5,
            -2.0,
        ),  # steering, gas, brake: from 0 up it would brake as much as drive
        protocol="1000-step limit, random tracks",
    ),
    EnvSpec(
        "CartPole",
        "CartPole-v1",
        package="pygame",
        pip=_CLASSIC,
        probe=labels.cart_pole,
        renderer="wm.envs.renderers.classic_control:CartPoleRenderer",
        random_steps=30,
        protocol="500-step limit",
    ),
    EnvSpec(
        "Acrobot",
        "Acrobot-v1",
        package="pygame",
        pip=_CLASSIC,
        probe=labels.acrobot,
        renderer="wm.envs.renderers.classic_control:AcrobotRenderer",
        random_steps=500,
        protocol="500-step limit",
    ),
    EnvSpec(
        "Catch",
        "wm.envs.catch:Catch-v0",
        package="gymnasium",
        pip="gymnasium",
        probe=labels.catch,
        random_steps=8,
        protocol="7 steps",
    ),
)
