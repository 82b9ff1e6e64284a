"""Comparison of runs: reading them, refusing unlike ones, statistics and the verdict."""
