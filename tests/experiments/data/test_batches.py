"""A batch is a function of (seed, i): reproducible, shareable, each window once an epoch."""

import dataclasses

import numpy as np
import pytest

from experiments.data.baseline import target_bytes, unigram_nll
from experiments.data.batches import Batches
from experiments.data.config import NUM_SENTINELS, DataConfig
from experiments.data.objectives import batch_spec, objective_of
from experiments.data.prefetch import Prefetcher
from experiments.data.windows import Prepared, WindowWriter, write_array, write_facts
from models.errors import UserError

VOCAB_SIZE = 400
FIRST_ID = 3

CONFIGS = {
    "span_corruption": DataConfig(inputs_length=30, targets_length=12),
    "mlm": DataConfig(objective="mlm", inputs_length=30),
    "image_classification": DataConfig(objective="image_classification"),
}


@pytest.fixture(scope="module", params=CONFIGS)
def cfg(request) -> DataConfig:
    return CONFIGS[request.param]


@pytest.fixture(scope="module")
def prepared(cfg, tmp_path_factory) -> Prepared:
    """53 training and 21 validation examples; every window of text has one token of its own."""
    folder = tmp_path_factory.mktemp("prepared")
    rng = np.random.default_rng(0)
    facts = {"vocab_size": VOCAB_SIZE, "arrays": {}}
    for split, size in (("train", 53), ("validation", 21)):
        if cfg.objective == "image_classification":
            facts["vocab_size"] = 10
            images = rng.integers(0, 17, (size, 8, 8, 1), np.uint8)
            arrays = {"images": images, "labels": rng.integers(0, 10, size, np.uint8)}
            arrays["counts"] = np.bincount(arrays["labels"], minlength=10)
        else:
            length = objective_of(cfg).window_length
            windows = FIRST_ID + np.arange(size)[:, None] + np.zeros(length, np.int32)[None]
            writer = WindowWriter(folder / f"{split}_tokens.bin", length, VOCAB_SIZE)
            writer.add(windows.reshape(-1))
            facts["arrays"][f"{split}_tokens"] = writer.close()
            arrays = {"counts": writer.token_counts}
        for name, array in arrays.items():
            about = write_array(folder / f"{split}_{name}.bin", array)
            facts["arrays"][f"{split}_{name}"] = about
    sizes = np.arange(VOCAB_SIZE, dtype=np.uint16) % 7
    facts["arrays"]["vocabulary_bytes"] = write_array(folder / "vocabulary_bytes.bin", sizes)
    write_facts(folder, facts)
    return Prepared.open(folder)


def same(first, second) -> bool:
    assert first.keys() == second.keys()
    return all((first[name] == second[name]).all() for name in first)


def identities(batch) -> list:
    """What tells the examples of a batch apart."""
    if "images" in batch:
        return [image.tobytes() for image in batch["images"]]
    name = "inputs" if "inputs" in batch else "tokens"
    # The window's own token is the most frequent one of its row.
    return [np.bincount(row[row >= FIRST_ID]).argmax() for row in batch[name]]


def test_shapes_and_types_are_as_announced(prepared, cfg):
    for split in ("train", "validation"):
        batches = Batches(prepared, cfg, split, 8)
        batch = batches.batch(0, 0)
        assert {name: (a.shape, a.dtype) for name, a in batch.items()} == batch_spec(cfg, 8)
        assert batches.shapes == {name: a.shape for name, a in batch.items()}


def test_a_batch_is_a_function_of_seed_and_number(prepared, cfg):
    batches = Batches(prepared, cfg, "train", 8)
    later = batches.batch(3, 17)
    assert same(later, Batches(prepared, cfg, "train", 8).batch(3, 17))
    assert not same(later, batches.batch(4, 17))
    assert not same(later, batches.batch(3, 18))


def test_every_epoch_sees_every_window_once(prepared, cfg):
    batches = Batches(prepared, cfg, "train", 1)
    assert batches.num_windows == batches.steps_per_epoch == 53
    epochs = [
        [identities(batches.batch(5, epoch * 53 + k))[0] for k in range(53)] for epoch in range(3)
    ]
    assert all(len(set(epoch)) == 53 for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]


def test_rows_do_not_depend_on_the_batch_size_or_the_hosts(prepared, cfg):
    whole = Batches(prepared, cfg, "train", 60)  # more than an epoch
    small = Batches(prepared, cfg, "train", 12)
    parts = [small.batch(9, k) for k in range(5, 10)]
    joined = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    assert same(whole.batch(9, 1), joined)
    shares = [small.batch(9, 7, small.share(k, 4)) for k in range(4)]
    joined = {name: np.concatenate([share[name] for share in shares]) for name in shares[0]}
    assert same(small.batch(9, 7), joined)


def test_shares_must_be_equal(prepared, cfg):
    with pytest.raises(UserError, match="batch size 10: not divisible by 4"):
        Batches(prepared, cfg, "train", 10).share(0, 4)
    with pytest.raises(UserError, match="batch size 0"):
        Batches(prepared, cfg, "train", 0)


def test_validation_ignores_the_seed_and_repeats(prepared, cfg):
    batches = Batches(prepared, cfg, "validation", 8)
    assert batches.steps_per_epoch == 3
    assert same(batches.batch(0, 1), batches.batch(99, 1))
    assert same(batches.batch(0, 1), batches.batch(0, 4))


def test_validation_weighs_every_window_once_whatever_the_batch_size(prepared, cfg):
    weight = objective_of(cfg).weight

    def weighing_rows(batch_size):
        batches = Batches(prepared, cfg, "validation", batch_size)
        rows = []
        for i in range(batches.steps_per_epoch):
            batch = batches.batch(0, i)
            real = batch[weight].reshape(batch_size, -1).any(axis=1)
            rows += [{name: a[k] for name, a in batch.items()} for k in np.flatnonzero(real)]
            for name in batch:  # a filler row is a window like others, but for its weight
                if name != weight and not real.all():
                    assert batch[name][~real].any()
        return rows

    eights, fives = weighing_rows(8), weighing_rows(5)
    assert len(eights) == len(fives) == 21
    assert all(same(a, b) for a, b in zip(eights, fives, strict=True))


def test_validation_masks_are_not_the_training_masks(prepared, cfg):
    if cfg.objective == "image_classification":
        pytest.skip("nothing is drawn for images")
    train, validation = (
        next(iter(Batches(prepared, cfg, split, 8).batch(0, 0).values()))
        for split in ("train", "validation")
    )
    assert ((train > VOCAB_SIZE - NUM_SENTINELS) != (validation > VOCAB_SIZE - NUM_SENTINELS)).any()


def test_prefetcher_gives_the_same_batches_from_where_it_starts(prepared, cfg):
    batches = Batches(prepared, cfg, "train", 8)
    rows = batches.share(1, 2)
    with Prefetcher(batches, 3, 40, rows=rows, ahead=2) as prefetcher:
        for i in range(40, 50):
            assert same(prefetcher.next(), batches.batch(3, i, rows))


def test_unigram_nll_by_hand(prepared, cfg):
    """Counts targets of many epochs: their distribution is what the baseline may know."""
    train = Batches(prepared, cfg, "train", 53)
    epochs = 200
    seen = np.zeros(prepared.vocab_size)
    for i in range(epochs):
        seen += np.bincount(targets_of(train.batch(1, i)), minlength=prepared.vocab_size)
    probabilities = (seen / epochs + 1) / (seen / epochs + 1).sum()
    if cfg.objective == "mlm":  # there every count is of a whole epoch, not of what is masked
        counts = np.bincount(
            prepared.array("train", "tokens").reshape(-1), minlength=prepared.vocab_size
        )
        probabilities = (counts + 1) / (counts + 1).sum()
    batches = Batches(prepared, cfg, "validation", 8)
    validation = [batches.batch(0, i) for i in range(batches.steps_per_epoch)]
    targets = np.concatenate([targets_of(batch) for batch in validation])
    total, count = unigram_nll(prepared, cfg, validation)
    assert count == len(targets)
    np.testing.assert_allclose(total, -np.log(probabilities[targets]).sum(), rtol=5e-3)


def targets_of(batch) -> np.ndarray:
    if "targets" in batch:
        return batch["targets"][batch["targets"] > 0]
    if "masked_labels" in batch:
        return batch["masked_labels"][batch["masked_weights"] > 0]
    return batch["labels"][batch["weights"] > 0]


def test_bytes_of_the_targets(prepared, cfg):
    if cfg.objective == "image_classification":
        pytest.skip("images have no bytes of text")
    batches = Batches(prepared, cfg, "validation", 8)
    validation = [batches.batch(0, i) for i in range(batches.steps_per_epoch)]
    expected = sum(int(t) % 7 for batch in validation for t in targets_of(batch))
    assert target_bytes(prepared, validation) == expected


def test_images_are_scaled_to_plus_minus_one():
    cfg = dataclasses.replace(CONFIGS["image_classification"])
    images = np.array([0, 8, 16], np.uint8).reshape(3, 1, 1, 1) + np.zeros((1, 8, 8, 1), np.uint8)
    rows = {"images": images, "labels": np.array([1, 2, 3], np.uint8)}
    batch = objective_of(cfg).examples(rows, np.zeros((3, 0), np.uint64), 10)
    assert batch["images"][:, 0, 0, 0].tolist() == [-1.0, 0.0, 1.0]
    assert batch["labels"].tolist() == [1, 2, 3]
