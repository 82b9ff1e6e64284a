"""The sparsity scaling law: fit it, know how sure it is, and read decisions off it."""
