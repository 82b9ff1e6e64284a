"""Every test runs on eight simulated CPU devices, and implicit rank promotion is an error."""

import jax

jax.config.update("jax_num_cpu_devices", 8)
jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_disable_most_optimizations", True)
