"""Writes small reference files of what transformers on torch generates with T5.

    python -m tests.models.make_generated_references        (needs the extra `parity`)

Each file in `tests/models/references/` holds a randomly initialised model as in
`make_references.py`, inputs, and the tokens of every search: without a start token, padded with 0.
"""

from typing import Any

import numpy as np

from tests.models.make_references import (
    FOLDER,
    T5_CASES,
    model_arrays,
    padded,
    t5_model,
    t5_options,
)

MAX_LENGTH = 10
# Name -> what is asked of both `make_generate` and transformers.
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 3, "length_penalty": 1.0},
    "shorter_beams": {"num_beams": 3, "length_penalty": 0.6},
}
# Name -> options that differ from the base, and a seed whose sequences have many lengths.
GENERATED_CASES: dict[str, tuple[dict[str, Any], int]] = {
    "t5_gated_untied_generated": (T5_CASES["t5_gated_untied"], 22),
    "t5_relu_tied_generated": (T5_CASES["t5_relu_tied"], 12),
}


def generated_reference(
    changes: dict[str, Any], seed: int, searches: dict[str, dict[str, Any]]
) -> dict[str, np.ndarray]:
    """Returns the arrays of one reference file, computed by transformers."""
    import torch

    changes = changes | {"vocab_size": 7}  # so few tokens that some sequences end early
    options, model = t5_options(changes), t5_model(changes, seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "block" in name:  # At their initial size they let a tied model repeat itself.
                weight.mul_(3.0)
    rng = np.random.default_rng(seed)
    inputs = padded(rng, options["vocab_size"], lengths=(17, 5, 11, 1, 2, 8, 3, 14))
    arrays = {**model_arrays(options, model), "inputs": inputs}
    for name, search in searches.items():
        tokens = model.generate(
            torch.from_numpy(inputs).long(),
            attention_mask=torch.from_numpy(inputs != 0).long(),
            max_new_tokens=MAX_LENGTH,
            do_sample=False,
            use_cache=False,  # Its cache has as many layers as the encoder, here fewer.
            **search,
        ).numpy()[:, 1:]
        # What transformers writes after the end differs from search to search.
        inside = np.cumsum(tokens == 1, axis=1) - (tokens == 1) == 0
        tokens = np.where(inside, tokens, 0).astype(np.int32)
        arrays[name] = np.pad(tokens, ((0, 0), (0, MAX_LENGTH - tokens.shape[1])))
    return arrays


def main() -> None:
    for name, (changes, seed) in GENERATED_CASES.items():
        path = FOLDER / f"{name}.npz"
        np.savez_compressed(path, **generated_reference(changes, seed, SEARCHES))
        print(f"{path}: {path.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
