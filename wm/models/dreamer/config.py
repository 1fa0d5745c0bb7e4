"""What a Dreamer is built of, as plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DreamerConfig:
    """Sizes of all networks. Frames are (size, size, channels * stack); an action is `action` numbers, one-hot if
    `discrete`. The state is `deter` numbers carried by the GRU and `stoch` latents: of `classes` categories each, or
    Gaussian if `classes` is 0."""

    size: int
    channels: int
    action: int
    discrete: bool
    stack: int = 1
    encoder: str = "conv"
    deter: int = 256
    hidden: int = 128
    stoch: int = 32
    classes: int = 16
    depth: int = 16
    units: int = 128
    layers: int = 2
    bins: int = 63

    @property
    def planes(self) -> int:
        """Channels of what the encoder sees."""
        return self.channels * self.stack

    @property
    def sample(self) -> int:
        """Width of a sample of the latents."""
        return self.stoch * (self.classes or 1)

    @property
    def feature(self) -> int:
        """Width of what the heads see: the whole state."""
        return self.deter + self.sample
