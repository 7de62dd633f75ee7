"""Speed, measured beside others in the same hour: `python -m loadtest.bench.main` (or `make bench`)."""
