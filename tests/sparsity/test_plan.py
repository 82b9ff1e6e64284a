"""Which parameters are pruned, and by how much."""

import math

import jax
import numpy as np
import pytest

from models.api import build
from models.config import T5Config
from models.errors import UserError
from models.presets import BERT_DEMO, VIT_DEMO
from sparsity.config import PruningConfig
from sparsity.plan import embedding_sparsity, erk_sparsities, make_plan, named_leaves


def tree(shapes):
    return jax.tree.map(
        lambda shape: jax.ShapeDtypeStruct(shape, np.float32),
        shapes,
        is_leaf=lambda x: isinstance(x, tuple) and all(isinstance(i, int) for i in x),
    )


T5 = tree(
    {
        "token_embedding": (100, 16),
        "encoder": {
            "relative_bias": (32, 4),
            "layers": {
                "attention_norm": (3, 16),
                "attention": {"query": (3, 16, 16)},
                "mlp": {"wi_gate": (3, 16, 40), "wo": (3, 40, 16)},
            },
            "final_norm": (16,),
        },
        "logits": (16, 100),
    }
)
MATRICES = {
    "encoder/layers/attention/query",
    "encoder/layers/mlp/wi_gate",
    "encoder/layers/mlp/wo",
}


def magnitude(**fields) -> PruningConfig:
    cfg = PruningConfig(rule="magnitude", **({"sparsity": 0.75} | fields))
    cfg.check()
    return cfg


def test_matrices_and_embeddings_are_pruned_as_in_the_study():
    targets = make_plan(magnitude(), T5).targets
    assert set(targets) == MATRICES | {"token_embedding", "logits"}
    assert {targets[path].sparsity for path in MATRICES} == {0.75}
    assert targets["logits"].sparsity == targets["token_embedding"].sparsity == 0.5
    assert targets["token_embedding"].pruned_units == 800
    wo = targets["encoder/layers/mlp/wo"]
    assert (wo.layers, wo.units, wo.pruned_units) == (3, 640, 480)


@pytest.mark.parametrize(
    ("model", "dense_matrices"),
    [
        (T5Config(model_dim=8, mlp_dim=8, num_heads=2, head_dim=4, vocab_size=128), set()),
        (BERT_DEMO, {"position_embedding", "token_type_embedding"}),
        (VIT_DEMO, {"position_embedding"}),
    ],
)
def test_every_matrix_of_the_models_is_pruned_but_tables_of_positions(model, dense_matrices):
    params = jax.eval_shape(build(model).init, jax.random.key(0))
    targets = make_plan(magnitude(), params).targets
    for path, leaf in named_leaves(params):
        matrix = leaf.ndim - ("layers" in path.split("/")) >= 2
        dense = path in dense_matrices or path.endswith("relative_bias")
        assert (path in targets) == (matrix and not dense), path
    assert {path for path in targets if targets[path].sparsity == 0.5} == {
        path for path in targets if path in ("token_embedding", "logits")
    }


def test_embeddings_can_stay_dense_or_be_pruned_like_the_rest():
    assert set(make_plan(magnitude(embedding_sparsity="dense"), T5).targets) == MATRICES
    same = make_plan(magnitude(embedding_sparsity="same"), T5).targets
    assert same["logits"].sparsity == 0.75


def test_embedding_sparsity_cancels_the_growth_of_the_width():
    # Non-zeros of the rest are matched when the width grows by 1/√(1 − S).
    for sparsity in (0.5, 0.75, 0.875):
        assert math.isclose((1 - embedding_sparsity(sparsity)) / math.sqrt(1 - sparsity), 1)


def test_nothing_left_to_prune_is_an_error():
    with pytest.raises(UserError, match="no parameter is pruned"):
        make_plan(magnitude(exclude=(".*",)), T5)


def test_counts_round_half_up_to_the_nearest_weight():
    plan = make_plan(magnitude(sparsity=0.5), tree({"w": (3, 3), "v": (5, 3)}))
    assert plan.targets["w"].pruned_units == 5
    assert plan.targets["v"].pruned_units == 8


@pytest.mark.parametrize(
    ("pattern", "axis", "text"),
    [
        ("2:4", "contraction", "first/b has 6 weights along its contraction axis"),
        ("1:2", "output", "first/b has 9 weights along its output axis"),
        ("block:4x3", "contraction", "first/b is 6x9"),
    ],
)
def test_shapes_that_do_not_divide_are_named_and_can_be_excluded(pattern, axis, text):
    params = tree({"first": {"b": (6, 9)}, "second": (8, 12)})
    cfg = magnitude(pattern=pattern, nm_axis=axis, sparsity=0.5)
    with pytest.raises(UserError, match=text):
        make_plan(cfg, params)
    cfg = magnitude(pattern=pattern, nm_axis=axis, sparsity=0.5, exclude=("first/b",))
    assert set(make_plan(cfg, params).targets) == {"second"}


def test_nm_leaves_exactly_n_of_m_and_embeddings_unstructured():
    targets = make_plan(magnitude(pattern="1:4"), T5).targets
    assert targets["encoder/layers/mlp/wo"].pruned_units == 480
    assert targets["encoder/layers/mlp/wo"].pattern.shape == (1, 4)
    assert targets["logits"].pattern.kind == "unstructured"


def test_blocks_count_as_units():
    targets = make_plan(magnitude(pattern="block:4x4", embedding_sparsity="dense"), T5).targets
    target = targets["encoder/layers/mlp/wi_gate"]
    assert (target.units, target.pruned_units, target.weights_per_unit) == (40, 30, 16)


def test_erk_densities():
    # Closed form: without a cap, density_i = (1 − S) Σ size / Σ (in + out) · (in + out) / size_i.
    shapes = {"a": (40, 60), "b": (100, 20), "c": (50, 50)}
    share = 0.2 * (2400 + 2000 + 2500) / (100 + 120 + 100)
    expected = {
        "a": 1 - share * 100 / 2400,
        "b": 1 - share * 120 / 2000,
        "c": 1 - share * 100 / 2500,
    }
    result = erk_sparsities(shapes, 0.8)
    for path, sparsity in expected.items():
        assert math.isclose(result[path], sparsity, rel_tol=1e-12)


def test_erk_of_nothing_asked_for_is_dense():
    assert erk_sparsities({"a": (4, 4), "b": (8, 2)}, 0.0) == {"a": 0.0, "b": 0.0}
    assert erk_sparsities({}, 0.5) == {}


def test_erk_keeps_small_tensors_dense_and_still_meets_the_whole():
    shapes = {"small": (4, 4), "layers/big": (3, 100, 200), "wide": (10, 500)}
    result = erk_sparsities(shapes, 0.9)
    assert result["small"] == 0.0
    sizes = {path: math.prod(shape) for path, shape in shapes.items()}
    zeros = sum(result[path] * sizes[path] for path in shapes)
    assert math.isclose(zeros / sum(sizes.values()), 0.9, rel_tol=1e-12)
    # Ratio of densities of the uncapped tensors: (in + out) / (in · out) of one layer.
    ratio = (1 - result["wide"]) / (1 - result["layers/big"])
    assert math.isclose(ratio, (510 / 5000) / (300 / 20_000), rel_tol=1e-12)


def test_paths_of_dicts_tuples_and_lists():
    paths = [path for path, _ in named_leaves({"a": (1, [2, {"b": 3}])})]
    assert paths == ["a/0", "a/1/0", "a/1/1/b"]
