"""CMA-ES search over controllers and the evaluation of candidates."""
