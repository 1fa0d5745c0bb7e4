"""Settings that the trainings of V and of M share."""

from dataclasses import dataclass

from wm.errors import UsageProblem
from wm.settings.base import MOST_IN_BATCH, Settings, setting


@dataclass(frozen=True, kw_only=True)
class GradientSettings(Settings):
    """What the trainings of V and of M have in common."""

    # M's, as in the paper's code; V has 6,000.
    steps: int = setting(4000, "Training steps.", low=1, section="Training")
    # The default of M's windows; V's is 64.
    batch: int = setting(32, "Frames or windows per batch.", low=1, high=MOST_IN_BATCH, section="Training")
    precision: str = setting(
        "auto",
        "Number format of matrix products; auto: bf16 where the device has it.",
        choices=("auto", "fp32", "bf16", "fp16"),
        section="Training",
    )
    init_from: str | None = setting(None, "Run to start from, such as runs/Pong.", section="Training", result=False)
    mixture: str = setting(
        "", "With several --data, the share of each in a batch, such as 0.3,0.7; empty: by their numbers of steps."
    )
    # 1: a step of several batches has no CUDA graph (2026-11-26).
    accumulate: int = setting(1, "Batches whose gradients are averaged into one step.", low=1, high=4096)
    # 8 pieces take 1.8 times the CPU time of a whole batch on M (decision 0026), so only torchrun has them.
    pieces: int = setting(
        1,
        "Pieces of every batch, whose gradients are added in order; 1: the whole. torchrun takes 8, and 1, 2, 4 or 8 "
        "processes then train the same weights.",
        low=1,
        high=64,
        newer=True,
    )
    # TF32's ten bits of mantissa are more than bf16's seven, in which the products are by default.
    tf32: bool = setting(True, "On CUDA, let float32 products use TF32.", result=False)
    # On a GPU compiling took longer than it saved in trainings of 300 to 600 steps (2026-11-26).
    compile: bool = setting(False, "Compile the loss with torch.compile.", result=False)
    # Pong's M learns in four times larger steps (preset dream, 2026-11-28); Ha & Schmidhuber's V has 1e-4.
    learning_rate: float = setting(1e-3, "Adam's step size at the start of a cosine decay.", low=1e-8, high=1.0)
    # That of Ha & Schmidhuber's M.
    clip: float = setting(1.0, "Largest gradient norm.", low=1e-6)
    # Every validation also costs a checkpoint, so presets with few steps validate more often.
    validate_every: int = setting(500, "Steps between validations; each also writes a checkpoint.", low=1)
    # Ten validations without a better one; 0 keeps a fixed number of steps, as the paper's.
    patience: int = setting(10, "End after this many validations without a better one; 0: never.", low=0)
    # At least one episode, whatever the share; an episode's own seed decides on which side it is.
    validation_share: float = setting(0.1, "Share of the episodes used for validation.", low=0.01, high=0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < self.pieces:
            raise UsageProblem(
                f"--batch is {self.batch} but a batch is split into {self.pieces} pieces; give a larger batch, or "
                "fewer with --set pieces=."
            )
