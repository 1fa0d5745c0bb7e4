"""One script per claim: each measures us and the reference in one run and prints one JSON line."""
