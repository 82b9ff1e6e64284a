"""Self-contained HTML pages of runs and of comparisons."""
