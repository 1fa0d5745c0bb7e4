"""Others' learners and ours at equal minutes: `python -m benchmarks.peers ENV METHOD` makes a row of
docs/results/peers.json."""
