"""Settings of `wm train-dreamer`."""

import math
from dataclasses import dataclass

from wm.errors import UsageProblem
from wm.settings.base import LONGEST, MOST_EPISODES, MOST_IN_BATCH, Settings, check_mask, setting

_WIDEST = 8192  # of a layer: what model.json may name (wm/artifacts/schemas.py)
# A small replay has fractions of its capacity instead: it still has several parts, and its memory many readings.
PREFILL = 256  # steps before the first update: more than a window of each environment
PART_ROWS = 4096  # steps between checkpoints, all that a kill loses; each checkpoint writes a part of the replay
LOG_EVERY = 500  # environment steps between lines of metrics, or pretraining updates


@dataclass(frozen=True, kw_only=True)
class DreamerSettings(Settings):
    """`wm train-dreamer`: a recurrent state-space model with actor and critic, trained while it acts."""

    # DreamerV3's Atari100k has 400,000 frames, which are 100,000 steps.
    steps: int = setting(100_000, "Environment steps; 0: the world model on --data.", low=0, section="Play")
    # Two, because updates take most of the time; more environments wait for them.
    num_envs: int = setting(2, "Environments stepped in parallel.", low=1, high=64, section="Play")
    # 207 MB of gray frames of 64 x 64.
    capacity: int = setting(50_000, "Steps of the replay, in memory and on disk.", low=64, section="Play")
    target_return: float | None = setting(
        None,
        "End when the mean return of the last 100 training episodes, and then of a validation, is at least this.",
        section="Play",
    )
    # For two cores; the preset `small` has 512 for a GPU. Quick has 16.
    train_ratio: float = setting(32.0, "Replayed steps per environment step.", low=0, high=65536, section="Training")
    # A quarter of DreamerV3's 16 x 64 steps, for a CPU: an update of `tiny` takes 0.56 s (2026-11-22).
    batch: int = setting(8, "Windows per update.", low=1, high=MOST_IN_BATCH, section="Training")
    seq_len: int = setting(32, "Steps per window.", low=2, high=LONGEST, section="Training")
    # 500 updates already show Pong's ball and paddles (2026-11-21).
    pretrain: int = setting(
        2000,
        "With --data: updates of the world model on it before the first environment step.",
        low=1,
        section="Training",
    )
    precision: str = setting(
        "auto",
        "Number format of matrix products; auto: bf16 where the device has it.",
        choices=("auto", "fp32", "bf16"),
        section="Training",
    )
    # Until then the world model's states mean nothing to the actor.
    warmup: int = setting(1024, "Environment steps before actor and critic are trained, too.", low=0)
    # As for C: twenty episodes.
    validation_episodes: int = setting(
        20,
        "Episodes of a validation, with seeds of their own; --steps does not count theirs.",
        low=2,
        high=MOST_EPISODES,
    )
    # DreamerV3's.
    horizon: int = setting(15, "Steps of an imagined trajectory.", low=1, high=LONGEST)
    # 8 of 32: a quarter of the imagination's work. DreamerV3 starts from all.
    imagine_last: int = setting(8, "Last states of a window that imagination starts from; 0: all.", low=0)
    # The decoder is most of the work on a CPU; DreamerV3 decodes all.
    decoded_share: float = setting(0.25, "Share of a batch's frames that an update decodes.", low=0.01, high=1)
    # Pong's ball and paddles appear with it (2026-11-21); no other value was compared.
    reconstruction_nats: float = setting(
        1000.0,
        "Weight of the reconstruction: nats that always predicting the mean image costs; 0: the plain summed squared "
        "error.",
        low=0,
    )
    # DreamerV3's.
    entropy: float = setting(3e-4, "Weight of the actor's entropy.", low=0)
    # Ten times DreamerV3's 1e-4, for small networks and few updates; the presets for a GPU have 1e-4.
    world_learning_rate: float = setting(1e-3, "Adam's step size for the world model.", low=1e-8, high=1)
    # Ten times DreamerV3's 3e-5, as above.
    actor_learning_rate: float = setting(3e-4, "Adam's step size for actor and critic.", low=1e-8, high=1)
    max_steps: int = setting(
        0,
        "Truncate episodes after this many steps; 0: the limit of --data, or the environment's own.",
        low=0,
        newer=True,
    )
    frames: str = setting(
        "auto",
        "Where gymnasium's frames come from: observations or render(); auto: as in --data, or observations that are "
        "images.",
        choices=("auto", "observation", "render"),
        newer=True,
    )
    observation: str = setting(
        "rgb",
        "foreground: rgb minus a slow background; motion: gray differences to the first frame, with gray=false.",
        choices=("rgb", "foreground", "motion"),
        newer=True,
    )
    mask: str = setting(
        "none",
        "What frames hide. flicker: half of the frames; 12-88: the rows between these percentages of the height.",
        newer=True,
    )
    # Sides that stride-2 convolutions halve to 4 or 6.
    size: int = setting(64, "Side of the square frames in pixels.", choices=(32, 64, 96, 128))
    gray: bool = setting(True, "Frames have one gray channel instead of three colours.")
    # Sizes of the preset `tiny`: an update of `small` takes 7 s on a CPU (2026-11-27).
    deter: int = setting(256, "Units of the GRU's state.", low=8, high=_WIDEST)
    hidden: int = setting(128, "Units between the parts of the recurrent model.", low=8, high=_WIDEST)
    stoch: int = setting(32, "Categorical latents.", low=1, high=_WIDEST)
    classes: int = setting(16, "Categories of each latent.", low=2, high=_WIDEST)
    depth: int = setting(16, "Channels of the first convolution.", low=2, high=_WIDEST)
    units: int = setting(128, "Units of a head's layers.", low=8, high=_WIDEST)
    layers: int = setting(2, "Layers of a head.", low=1, high=8)
    # DreamerV3 has 255 bins for the same range; odd, so that one is 0.
    bins: int = setting(63, "Bins of reward and value; odd.", low=3, high=511)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_mask(self.mask)
        if self.bins % 2 == 0:
            raise UsageProblem(f"--set bins is {self.bins}; expected an odd number, so that one bin is 0.")
        if self.capacity < self.num_envs * self.seq_len:
            raise UsageProblem(
                f"--capacity is {self.capacity}; expected at least a window of {self.seq_len} steps for each of "
                f"{self.num_envs} environments."
            )

    @property
    def prefill(self) -> int:
        """Environment steps before the first update."""
        return min(PREFILL, self.capacity // 8)

    @property
    def part_rows(self) -> int:
        """Steps of a part of the replay; a checkpoint is saved with each."""
        return min(PART_ROWS, self.capacity // 4)

    @property
    def log_every(self) -> int:
        """Steps between lines of metrics."""
        return min(LOG_EVERY, max(self.capacity // 16, 1))

    def require_update(self, collected: bool) -> None:
        """Raise UsageProblem if training would end before the first update of actor and critic. On `collected` episodes
        alone the world model is trained, and nothing else."""
        if not self.steps:
            if collected:
                return
            raise UsageProblem("--steps is 0 without --data; give environment steps, or collected episodes.")
        first = max(self.prefill, self.num_envs * self.seq_len, self.warmup)
        rounds = math.ceil(self.steps / self.num_envs) - math.ceil(first / self.num_envs)
        if rounds * self.num_envs * self.train_ratio < self.batch * self.seq_len:
            raise UsageProblem(
                f"--steps is {self.steps} at --train-ratio {self.train_ratio:g}: training would end before the first "
                f"update of the actor, which needs {first} steps (warmup: {self.warmup}) and then a batch's worth; "
                "give more steps, or a lower warmup."
            )
