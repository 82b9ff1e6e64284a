"""One file a command of `python -m sparsity.scaling_law`: its arguments, its result, its table."""
