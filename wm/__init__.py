"""World models on the hardware people own: V compresses frames, M predicts them, C acts."""

__version__ = "0.3.0"
DISTRIBUTION = "world-models-wm"  # the name in setup.cfg; PyPI's `wm` is another project
