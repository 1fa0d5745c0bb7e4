"""Real environments: the known ones, their renderers, frames and labels."""
