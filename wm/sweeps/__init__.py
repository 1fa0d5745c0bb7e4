"""Searches over the settings of a stage by Optuna: the space, the objective, and the trials."""
