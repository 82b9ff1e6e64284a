"""What the benchmarks say, apart from the times: matrices, break-even points, ratios."""

import math
import types

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from sparsity import benchmark
from sparsity.benchmark_products import PATTERNS, Product, break_even, matrix, products
from sparsity.benchmark_training import CONFIGS, _overhead, interleave
from sparsity.prune import prune


@pytest.mark.parametrize("pattern", PATTERNS)
def test_matrices_have_the_zeros_asked_for(pattern):
    weights = matrix((40, 50), pattern, np.random.default_rng(0))
    share = 0.5 if pattern == "2:4" else float(pattern.removesuffix(" %")) / 100
    assert (weights == 0).sum() == round(2000 * share)
    if pattern == "2:4":
        assert ((weights != 0).reshape(10, 4, 50).sum(axis=1) == 2).all()


def measured(ratios: dict[float, float]) -> list[Product]:
    return [
        Product(
            shape="",
            tokens=1,
            pattern="",
            sparsity=sparsity,
            seconds={"dense": 2.0, "BCSR": 2.0 * ratio},
            bytes={},
        )
        for sparsity, ratio in ratios.items()
    ]


def test_break_even_of_times_that_are_proportional_to_density():
    # Time = 4 · density · dense time: even at density 1/4.
    rows = measured({0.5: 2.0, 0.9: 0.4, 0.99: 0.04})
    assert math.isclose(break_even(rows, "BCSR"), 0.75)


def test_break_even_needs_every_higher_sparsity():
    assert break_even(measured({0.5: 3.0, 0.75: 0.9, 0.9: 1.1, 0.99: 1.2}), "BCSR") is None
    assert 0.9 < break_even(measured({0.5: 3.0, 0.75: 0.9, 0.9: 1.1, 0.99: 0.2}), "BCSR") < 0.99
    assert break_even(measured({0.5: 0.8, 0.9: 0.1}), "BCSR") == 0.5


def test_all_forms_compute_one_product_and_have_their_bytes():
    # `products` raises where a form's result differs from the dense one.
    row = products("BERT-base attention", 1, rounds=1)[PATTERNS.index("90 %")]
    kept = round(0.1 * 768 * 768)
    assert row["bytes"]["dense"] == 4 * 768 * 768
    assert row["bytes"]["masked dense"] == 5 * 768 * 768
    assert abs(row["bytes"]["BCSR"] - (8 * kept + 4 * 769)) <= 8
    assert all(seconds > 0 for seconds in row["seconds"].values())


def test_runs_take_turns_after_one_round_of_warming_up():
    calls: list[str] = []
    seconds = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)
    assert "".join(calls) == "abababab"
    assert {name: len(times) for name, times in seconds.items()} == {"a": 3, "b": 3}


def test_no_gain_is_said():
    assert "no gain" in benchmark._verdict(None)
    assert "from 78.2 % on" in benchmark._verdict(0.782)


def test_overhead_is_shared_out_over_the_interval_and_the_pruned_weights():
    params = {"kernel": jnp.ones((4, 12)), "bias": jnp.ones(12)}
    opt = prune(optax.sgd(0.1), CONFIGS["2:4"]).init(params)
    pruned = types.SimpleNamespace(state=(params, opt), peak_bytes=1096)
    dense = types.SimpleNamespace(peak_bytes=1000)
    seconds = {
        "dense": [2.0, 2.0, 4.0],
        "2:4, ordinary step": [3.0, 2.0, 4.0],
        "2:4, choosing masks": [4.0, 5.0, 4.0],
    }
    overhead = _overhead("2:4", seconds, pruned, dense)
    # 1, 3 and 0 seconds more over 100 steps of 2, 2 and 4 seconds.
    assert overhead["choosing"] == pytest.approx(0.005)
    assert overhead["choosing_range"] == pytest.approx((0.0, 0.015))
    # 48 weights; a row of 12 takes two bytes in a checkpoint.
    assert overhead["held_bytes"] == 1 and overhead["peak_bytes"] == 2
    assert overhead["checkpoint_bits"] == pytest.approx(8 * 2 * 4 / 48)
    assert "adds 0.50 % to a dense step (0.00 to 1.50 %" in benchmark._overhead_text(overhead)
