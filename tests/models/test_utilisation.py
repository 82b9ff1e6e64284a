"""Utilisation: the last batch that fits, and FLOPs counted by its size."""

import jax
import pytest

from models import utilisation
from models.utilisation import Utilisation, largest_fitting


def a_device_of(largest_batch: int):
    """Stands for a device whose memory is exhausted beyond some batch size."""

    def measure(cfg, batch, dtype, width):
        size = len(batch["images"])
        if size > largest_batch:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory")
        return Utilisation(size, 1.0, 2.0, 4.0)

    return measure


@pytest.mark.parametrize(("fits", "limit", "expected"), [(40, 1024, 32), (1024, 64, 64)])
def test_the_largest_batch_that_fits_is_reported(monkeypatch, fits, limit, expected):
    monkeypatch.setattr(utilisation, "_measure", a_device_of(fits))
    found = largest_fitting("vit", 1, "bfloat16", 64, limit)
    assert found.batch_size == expected
    assert found.share == 0.5


def test_nothing_fits(monkeypatch):
    monkeypatch.setattr(utilisation, "_measure", a_device_of(1))
    with pytest.raises(SystemExit, match="does not fit"):
        largest_fitting("vit", 1, "bfloat16", 64, 1024)


def test_other_failures_are_not_taken_for_a_full_memory(monkeypatch):
    def broken(*_):
        raise jax.errors.JaxRuntimeError("INTERNAL: no")

    monkeypatch.setattr(utilisation, "_measure", broken)
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        largest_fitting("vit", 1, "bfloat16", 64, 1024)


@pytest.mark.slow
def test_measured_on_this_device():
    found = largest_fitting("vit", 1, "float32", 512, 16)
    assert found.batch_size == 16
    assert 0 < found.share < 3
