"""Programs that make the pages and figures of docs/results from JSON: `python -m benchmarks.pages.scores`."""
