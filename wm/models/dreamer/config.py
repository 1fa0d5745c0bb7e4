"""The sizes of a Dreamer's networks, as plain numbers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DreamerConfig:
    """Frames are (size, size, channels). An action is encoded as `action` numbers, one-hot if `discrete`. The state is
    the GRU's `deter` numbers and `stoch` latents of `classes` categories each."""

    size: int
    channels: int
    action: int
    discrete: bool
    # The defaults of wm/settings/train_dreamer.py; a run's model.json has its own numbers.
    deter: int = 256
    hidden: int = 128
    stoch: int = 32
    classes: int = 16
    depth: int = 16
    units: int = 128
    layers: int = 2
    bins: int = 63

    @property
    def latent_width(self) -> int:
        """Width of a flattened sample of the latents."""
        return self.stoch * self.classes

    @property
    def feature_width(self) -> int:
        """Width of the heads' input: the whole state."""
        return self.deter + self.latent_width
