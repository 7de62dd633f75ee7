"""Right answers: compiled programs beside transformers, alone and in a batch. `python -m
loadtest.checks.main`.
"""
