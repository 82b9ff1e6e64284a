"""The benchmark verifies what it times, and its parts say what they measured."""

import json
import subprocess
import sys
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from fff.benchmark import report, verify
from fff.benchmark.__main__ import main
from fff.benchmark.variants import fast_variants, gemm_variants, level_variants
from fff.config import FFFConfig
from fff.interleave import interleave, ratio
from fff.random_tables import random_dense, random_tables, random_tokens
from models.errors import UserError
from tests.fff import oracle

CFG = FFFConfig(trees=2, depth=4)
X, TABLES = random_tokens(40, 32), random_tables(CFG, 32)
ROOT = Path(__file__).parents[2]


def test_walk_in_float64_is_the_loop():
    wanted, _, _ = oracle.hard(CFG, X, *TABLES)
    np.testing.assert_allclose(
        verify.walk_in_float64(CFG, np.asarray(X), TABLES), wanted, atol=1e-12
    )


def test_every_fast_variant_passes():
    for variant in fast_variants(CFG, X, TABLES):
        assert verify.check_fast(CFG, variant, np.asarray(X), TABLES) < 1e-5
        assert variant.flops == 4 * 40 * 32 * 10
        itemsize = 2 if "bfloat16" in variant.name else 4
        assert variant.row_bytes == 2 * 40 * 32 * 10 * itemsize


def test_every_dense_variant_passes():
    weights = random_dense(32, 48)
    variants = gemm_variants(X, weights, ("XLA", "NumPy", "torch")) + level_variants(X, weights)
    assert {variant.level for variant in variants} >= {"gemm", "level 2"}
    for variant in variants:
        assert verify.check_dense(variant, np.asarray(X), weights) < 1e-5
        assert variant.flops == 4 * 40 * 32 * 48


def test_a_wrong_output_is_not_timed():
    variant = fast_variants(CFG, X, TABLES)[0]
    zeros = variant._replace(call=lambda: jnp.zeros_like(X))
    with pytest.raises(UserError, match="XLA gather: 40 of 40 tokens are not those of float64"):
        verify.check_fast(CFG, zeros, np.asarray(X), TABLES)
    weights = random_dense(32, 48)
    dense = gemm_variants(X, weights, ("XLA",))[0]._replace(call=lambda: X * jnp.nan)
    with pytest.raises(UserError, match="XLA GEMM: off by nan"):
        verify.check_dense(dense, np.asarray(X), weights)


def test_leaves_used():
    nodes = np.zeros((10, 1, 3), int)
    nodes[:, 0, 2] = [3] * 7 + [5] * 3
    assert verify.leaves_used(FFFConfig(depth=2), nodes) == {
        "leaves": 4,
        "leaves_used": 2,
        "fullest_leaf": 0.7,
    }


def test_interleaved_times_and_their_ratio():
    calls: list[str] = []
    times = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 0.0, 3)
    assert {name: len(values) for name, values in times.items()} == {"a": 3, "b": 3}
    assert calls.index("b") < len(calls) - 1 - calls[::-1].index("a")
    assert ratio({"a": [2.0, 9.0, 4.0], "b": [1.0, 3.0, 1.0]}, "a", "b") == 3.0


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("--trees=11", "11: not of the form TREESxDEPTH"),
        ("--trees=0x3", "trees=0: must be at least 1"),
        ("--trees=1x21", "depth=21: must be from 0 to 20"),
        ("--tokens=many", "--tokens=many: write numbers"),
        ("--tokens=0", "must be at least 1"),
        ("--seconds=nan", "--seconds=nan: must be at least 0 and finite"),
        ("--tables=/nowhere.npz", "--tables=/nowhere.npz: not what experiments.fff_tables writes"),
        ("--out=/dev/null/x", "--out=/dev/null/x: cannot write there (Not a directory)"),
    ],
)
def test_wrong_flags(flag, text, tmp_path, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([f"--out={tmp_path}", flag])
    assert stopped.value.code == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "text"),
    [
        ({"x": np.ones((0, 32))}, "tokens x of shape (0, 32), not (T, D)"),
        ({"x": np.ones((4, 16))}, "--model_dim=32: the tokens have 16"),
        ({"node_in": np.ones((61, 32), np.float32)}, "must be (62, 32), (62,), (62, 32)"),
        (None, "not what experiments.fff_tables writes"),
    ],
)
def test_wrong_tables(arrays, text, tmp_path, capsys):
    whole = dict(zip(("x", "node_in", "bias", "node_out"), (X, *TABLES), strict=True))
    path = tmp_path / "tables.npz"
    if arrays is None:
        path.write_bytes(b"PK\x03\x04, and then no archive")
    else:
        np.savez(path, **(whole | arrays))
    with pytest.raises(SystemExit):
        main([f"--tables={path}", "--trees=2x4", "--model_dim=32", f"--out={tmp_path}"])
    assert text in capsys.readouterr().err


def test_picture_shows_every_word():
    dense = [f"{number}: a dense layer with quite a long name 3072" for number in range(9)]
    micros = {"XLA gather": 5.0, "C++, token by token": 0.9}
    micros |= {name: 56.0 * 1.4**number for number, name in enumerate(dense)}
    figure = report.picture(
        {
            "hot": [
                {
                    "tokens": 16384,
                    "rows": [
                        {
                            "name": name,
                            "level": "gemm" if name in dense else "fff",
                            "us_per_token": value,
                        }
                        for name, value in micros.items()
                    ],
                    "speedup": {
                        fast: {name: micros[name] / micros[fast] for name in dense}
                        for fast in ("XLA gather", "C++, token by token")
                    },
                }
            ]
        }
    )
    figure.draw_without_rendering()
    for axes in figure.axes:
        texts = [axes.title, *axes.texts, *axes.get_yticklabels()]
        boxes = [text.get_window_extent() for text in texts]
        assert all(figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 for box in boxes)
        # The figure of the longest bar is inside its frame.
        assert max(box.x1 for box in boxes[1 : 1 + len(axes.texts)]) <= axes.bbox.x1


@pytest.mark.slow
def test_the_command(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "fff.benchmark", "--quick", "--trees=1x5", f"--out={tmp_path}"],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "benchmark.json").read_text())
    assert [hot["tokens"] for hot in results["hot"]] == [1, 256]
    for hot in results["hot"]:
        levels = {row["level"] for row in hot["rows"]}
        assert {"fff", "gemm", "level 1", "level 2"} <= levels
        assert all(row["seconds"] > 0 for row in hot["rows"])
        assert set(hot["speedup"]["C++"]) == {
            row["name"] for row in hot["rows"] if row["level"] != "fff"
        }
    assert (tmp_path / "benchmark.png").stat().st_size > 10_000
    assert "faster, 256 tokens, by baseline" in done.stdout
