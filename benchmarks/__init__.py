"""One script per claim: each measures us and the reference in one run and prints one JSON line per goal."""

import os

# Before numpy is imported: nobody here computes with more than one thread a process, but for cpu_threads.py.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as `wm` does
os.environ.update(dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
