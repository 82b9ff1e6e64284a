"""Where compiled programs are kept."""

import os

import jax
import pytest

from experiments.program import enable_compilation_cache


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="cores cannot be taken away")
def test_processes_with_other_cores_do_not_share_programs(monkeypatch):
    before = {
        name: getattr(jax.config, name)
        for name in ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    }
    folders = []
    try:
        for cores in ({0}, {0, 1}, {2}):
            monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: cores)
            enable_compilation_cache()
            folders.append(jax.config.jax_compilation_cache_dir)
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
    assert folders[0] != folders[1]
    assert folders[0] == folders[2]
