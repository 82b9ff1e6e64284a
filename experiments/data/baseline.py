"""The loss of a model that looks at no input: what training must fall below."""

from collections.abc import Iterable

import numpy as np

from experiments.data.batches import Batch
from experiments.data.config import DataConfig
from experiments.data.span_corruption import EOS, SpanCorruption
from experiments.data.windows import Prepared


def unigram_nll(
    prepared: Prepared, cfg: DataConfig, batches: Iterable[Batch]
) -> tuple[float, float]:
    """Returns (sum, count) of the nll, in nats, of the targets of `batches` under their own
    unigram distribution in the training split, with one added to every count.

    Labels of a set that is read in place are not counted, since that would read all its images:
    there it is the uniform distribution, log(classes) nats for each.
    """
    counts = _target_counts(prepared, cfg) + 1.0
    nll = np.log(counts.sum()) - np.log(counts)
    total = count = 0.0
    for batch in batches:
        targets, weights = _weighted_targets(batch)
        total += float((nll[targets] * weights).sum())
        count += float(weights.sum())
    return total, count


def target_bytes(prepared: Prepared, batches: Iterable[Batch]) -> int:
    """Returns the UTF-8 bytes of text that the targets of `batches` stand for."""
    num_bytes = prepared.bytes_per_token.astype(np.int64)
    total = 0
    for batch in batches:
        targets, weights = _weighted_targets(batch)
        total += int((num_bytes[targets] * (weights > 0)).sum())
    return total


def _target_counts(prepared: Prepared, cfg: DataConfig) -> np.ndarray:
    """Returns how often each id is expected as a target in one epoch of training.

    Every token is removed with the same probability; each example adds its sentinels and an eos.
    """
    if cfg.source == "tfds_images":
        return np.zeros(prepared.vocab_size)
    counts = prepared.train_counts.astype(np.float64)
    if cfg.objective == "span_corruption":
        corruption = SpanCorruption.of(cfg)
        num_windows = counts.sum() / corruption.window_length
        counts *= corruption.num_noise_tokens / corruption.window_length
        counts[EOS] += num_windows
        counts[-corruption.num_spans :] += num_windows
    return counts


def _weighted_targets(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    if "targets" in batch:
        return batch["targets"], batch["targets"] != 0
    if "masked_labels" in batch:
        return batch["masked_labels"], batch["masked_weights"]
    return batch["labels"], batch["weights"]
