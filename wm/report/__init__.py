"""Film strips, animations, plots and pages."""
