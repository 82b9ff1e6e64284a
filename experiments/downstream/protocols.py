"""How the studies fine-tune, what they average, and how their scores were read."""

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from models.errors import UserError, did_you_mean


@dataclasses.dataclass(frozen=True, kw_only=True)
class Average:
    """A mean over metrics of several tasks, as a study quotes it."""

    name: str
    # (task, metric), each with the same weight.
    parts: tuple[tuple[str, str], ...]

    def of(self, scores: Mapping[tuple[str, str], float]) -> float | None:
        """Returns the mean; None unless every part is there."""
        if not set(self.parts) <= set(scores):
            return None
        return statistics.fmean(scores[part] for part in self.parts)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
    """Settings of fine-tuning; a task may have others under its name or its suite's."""

    epochs: int = 5
    batch_size: int = 16
    peak_learning_rate: float = 4e-5
    schedule: str = "cosine"
    warmup_fraction: float = 0.1
    beta2: float = 0.98
    epsilon: float = 1e-6
    dropout: float = 0.1
    # Tokens of an input of BERT, and of an input and an answer of T5.
    length: int = 128
    text_lengths: tuple[int, int] = (512, 16)
    # The head: what it reads, and the width of its tanh layer (0: none).
    pooling: str = "first"
    hidden_dim: int = 1024
    # name of a task or of a suite -> fields of this class that differ there
    differs: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    averages: tuple[Average, ...] = ()
    # How the study read one number off the epochs and seeds of a task.
    published_reading: str = ""

    def for_task(self, task: str) -> "Protocol":
        """Returns the protocol with what differs for a task put in."""
        changes: dict[str, Any] = {}
        for name in (task.partition("/")[0], task):
            changes |= self.differs.get(name, {})
        return dataclasses.replace(self, **changes)


_GLUE_9 = (
    ("glue/qqp", "f1"),
    ("glue/qnli", "accuracy"),
    ("glue/mrpc", "f1"),
    ("glue/mnli", "accuracy_matched"),
    ("glue/mnli", "accuracy_mismatched"),
    ("glue/stsb", "pearson"),
    ("glue/sst2", "accuracy"),
    ("glue/rte", "accuracy"),
    ("glue/cola", "matthews"),
)
_SUPERGLUE_6 = (
    ("superglue/cb", "macro_f1"),
    *((f"superglue/{name}", "accuracy") for name in ("boolq", "copa", "rte", "wic", "wsc")),
)
_AVERAGES = (
    Average(name="GLUE, 9 metrics, no WNLI", parts=_GLUE_9),
    Average(name="SuperGLUE, 6 tasks, no MultiRC, no ReCoRD", parts=_SUPERGLUE_6),
)
_SUPERGLUE = {"epochs": 10, "peak_learning_rate": 5e-5}
# As nanoT5 and Tk-Instruct.
_INSTRUCTIONS = {
    "epochs": 2,
    "batch_size": 8,
    "peak_learning_rate": 5e-5,
    "schedule": "constant",
    "warmup_fraction": 0.0,
    "dropout": 0.0,
}

PROTOCOLS = {
    # Kaddour et al. 2023 (arXiv 2307.06440), released code.
    "ntng": Protocol(
        differs={"superglue": _SUPERGLUE, "sni": _INSTRUCTIONS},
        averages=_AVERAGES,
        published_reading="best epoch on the dev set of each task, mean of 3 seeds",
    ),
    # Geiping and Goldstein 2022 (arXiv 2212.14034), "GLUE-sane".
    "cramming": Protocol(
        differs={"superglue": _SUPERGLUE, "sni": _INSTRUCTIONS},
        averages=_AVERAGES,
        published_reading="median of 5 seeds on the dev sets",
    ),
    # Belcak and Wattenhofer 2023 (arXiv 2311.10770): CoLA alone is trained three times as long.
    "ultrafastbert": Protocol(
        differs={"glue/cola": {"epochs": 15}, "superglue": _SUPERGLUE, "sni": _INSTRUCTIONS},
        averages=(
            Average(
                name="GLUE without CoLA, MNLI counted twice",
                parts=tuple(part for part in _GLUE_9 if part[0] != "glue/cola"),
            ),
            Average(name="the same with CoLA", parts=_GLUE_9),
        ),
        published_reading="dev sets, one pre-training run for each variant",
    ),
    # Of this project, for models of some hundred thousand weights on a CPU: rates that suit their
    # width, and the mean of all positions, since seconds of pre-training teach a first position
    # nothing.
    "demo": Protocol(
        epochs=2,
        peak_learning_rate=1e-3,
        schedule="linear",
        text_lengths=(128, 8),
        pooling="mean",
        hidden_dim=0,
        differs={
            "glue/cola": {"length": 64},
            "glue/sst2": {"length": 64},
            "embedded": {"length": 64},
            "digits": {"epochs": 10},
            "sni": {"epochs": 2, "text_lengths": (512, 32), "batch_size": 8},
        },
        averages=(
            Average(
                name="embedded suite, accuracy",
                parts=tuple(
                    (f"embedded/{name}", "accuracy")
                    for name in ("docstring", "shuffled", "continuation", "kind")
                ),
            ),
        ),
    ),
}


def find_protocol(name: str) -> Protocol:
    """Returns a protocol. Raises UserError for an unknown name."""
    if name not in PROTOCOLS:
        raise UserError(
            f"--protocol {name}: no such protocol.{did_you_mean(name, PROTOCOLS)} One of "
            f"{', '.join(PROTOCOLS)}."
        )
    return PROTOCOLS[name]


def summarise(values: Sequence[float]) -> tuple[float, float | None]:
    """Returns the mean and half of its 95 % interval, by Student's t; None for one value alone."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, None
    from scipy.stats import t

    quantile = float(t.ppf(0.975, len(values) - 1))
    return mean, quantile * statistics.stdev(values) / len(values) ** 0.5
