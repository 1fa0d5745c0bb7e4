"""The evolution of C by CMA-ES: fitness, search, stopping criteria, whitening, and transfer between models."""
