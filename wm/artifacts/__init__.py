"""Artifacts on disk: durable writes, manifests, fingerprints, runs, locks, the disk budget."""
