"""C by policy gradient: rollouts, PPO, and the training loop."""
