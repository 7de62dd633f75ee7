"""How the real checkpoint that checks and benchmarks use is obtained, and compiled."""
