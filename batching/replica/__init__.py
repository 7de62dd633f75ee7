"""The serving process (`main`), and the same engine inside another process (`local`, `workloads`)."""
