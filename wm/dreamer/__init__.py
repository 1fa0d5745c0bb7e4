"""Training a Dreamer online: it acts, stores its steps in a replay, and updates on the replay meanwhile."""
