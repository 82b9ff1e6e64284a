"""What a fast feedforward layer is worth in time, against every choice of a dense one."""
