"""Gradient training: the loop, checkpoints, the metrics stream."""
