"""What T5 generates, token for token as transformers on torch does."""

from functools import partial

import jax
import numpy as np
import pytest

from models.config import T5Config
from models.decode import make_generate
from tests.models.hugging_face_cases import load_reference
from tests.models.make_generated_references import (
    GENERATED_CASES,
    MAX_LENGTH,
    SEARCHES,
    generated_reference,
)
from tests.models.make_references import FOLDER, T5_CASES


def compare(reference, searches, folder) -> None:
    cfg, params = load_reference("t5", reference, "weights", folder)
    assert isinstance(cfg, T5Config)

    @partial(jax.jit, static_argnames="num_beams")
    def generate(params, batch, num_beams=1, length_penalty=1.0):
        options = {"num_beams": num_beams, "length_penalty": length_penalty}
        return make_generate(cfg, max_length=MAX_LENGTH, **options)(params, batch)

    for name, search in searches.items():
        ours = generate(params, {"inputs": reference["inputs"]}, **search)
        np.testing.assert_array_equal(ours, reference[name], err_msg=name)


@pytest.mark.parametrize("name", GENERATED_CASES)
def test_equals_recorded_transformers(name, tmp_path):
    with np.load(FOLDER / f"{name}.npz") as file:
        reference = dict(file)
    for tokens in (reference[search] for search in SEARCHES):
        lengths = (tokens != 0).sum(axis=1)
        assert len(set(lengths)) > 1, "not a test of sequences that end"
    assert len({reference[search].tobytes() for search in SEARCHES}) == len(SEARCHES)
    compare(reference, SEARCHES, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [103, 104])
@pytest.mark.parametrize("name", T5_CASES)
def test_equals_live_transformers(name, seed, tmp_path):
    pytest.importorskip("transformers", reason="needs the extra `parity`")
    pytest.importorskip("torch", reason="needs the extra `parity`")
    searches = SEARCHES | {
        "plain_beams": {"num_beams": 3, "length_penalty": 0.0},
        "many_beams": {"num_beams": 6, "length_penalty": 2.0},
    }
    compare(generated_reference(T5_CASES[name], seed, searches), searches, tmp_path)
