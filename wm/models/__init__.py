"""V, M and C: tensors in, tensors out; no files, no environments."""
