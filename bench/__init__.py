"""Benchmarks: one file per question, with rivals and aims. `python -m bench QUESTION [--quick] [--json FILE]`."""
