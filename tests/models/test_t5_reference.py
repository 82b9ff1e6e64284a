"""T5 against transformers on torch: logits, loss and the gradient of every weight."""

import jax
import numpy as np
import pytest

from models.api import build
from tests.models.helpers import assert_trees_near
from tests.models.hugging_face_cases import load_reference
from tests.models.make_references import FOLDER, T5_CASES, t5_reference


def compare(name, reference, folder) -> None:
    cfg, params = load_reference(name, reference, "weights", folder)
    model = build(cfg)
    batch = {"inputs": reference["inputs"], "targets": reference["targets"]}

    def mean_loss(params):
        total, count = model.losses(params, batch)["loss"]
        return total / count, model.apply(params, batch)

    (loss, logits), gradients = jax.jit(jax.value_and_grad(mean_loss, has_aux=True))(params)
    weighted = reference["targets"] != 0  # elsewhere the logits are nobody's concern
    assert_trees_near(loss, reference["loss"], 1e-5)
    assert_trees_near(logits[weighted], reference["logits"][weighted], 1e-5)
    assert_trees_near(gradients, load_reference(name, reference, "gradients", folder)[1], 1e-4)


@pytest.mark.parametrize("name", T5_CASES)
def test_equals_recorded_transformers(name, tmp_path):
    with np.load(FOLDER / f"{name}.npz") as reference:
        compare(name, dict(reference), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [101, 102])
@pytest.mark.parametrize("name", T5_CASES)
def test_equals_live_transformers(name, seed, tmp_path):
    pytest.importorskip("transformers", reason="needs the extra `parity`")
    pytest.importorskip("torch", reason="needs the extra `parity`")
    compare(name, t5_reference(T5_CASES[name], seed), tmp_path)
