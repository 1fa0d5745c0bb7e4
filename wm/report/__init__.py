"""Pictures: film strips, animations, curves."""
