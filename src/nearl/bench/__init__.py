"""Benchmarks: each measures a hot path beside its peers in one run and gives ratios."""
