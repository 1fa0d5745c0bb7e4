"""World models on the hardware people own: V compresses frames, M predicts them, C acts."""

__version__ = "0.2.0"
