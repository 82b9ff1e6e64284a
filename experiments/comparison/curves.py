"""Loss curves, as a run folder's metrics.jsonl holds them."""

import dataclasses
import json
import pathlib

import numpy as np

# Lines of training metrics that are read of one run, evenly spread; validation is read whole.
_TRAIN_LINES = 400


class Damaged(Exception):
    """A file of a run cannot be read."""


@dataclasses.dataclass(frozen=True)
class Curve:
    """Means over the run, one entry a logged line, in the order of steps."""

    step: np.ndarray
    # Reference-system seconds spent.
    rst_s: np.ndarray
    # Nats per target; NaN where the loss was not finite.
    loss: np.ndarray

    def __len__(self) -> int:
        return len(self.step)


def read_curves(path: pathlib.Path) -> tuple[Curve, Curve]:
    """The validation lines, and evenly spread training lines, of metrics.jsonl.

    Raises Damaged where a line is none of metrics.
    """
    lines = path.read_text().splitlines() if path.exists() else []
    # A kill can leave half a line at the end.
    if lines and not lines[-1].endswith("}"):
        lines.pop()
    validation: list[str] = []
    training: list[str] = []
    for line in lines:
        # Told apart before parsing: a long run has many more lines than are needed.
        (validation if '"split": "validation"' in line else training).append(line)
    stride = max(1, -(-len(training) // _TRAIN_LINES))
    return _curve(path, validation), _curve(path, training[::stride])


def _curve(path: pathlib.Path, lines: list[str]) -> Curve:
    try:
        values = [json.loads(line) for line in lines]
        steps = np.array([value["step"] for value in values], np.int64)
        rst_s = np.array([value["rst_s"] for value in values], np.float64)
        loss = np.array([value.get("nll", value.get("loss")) for value in values], np.float64)
    except (ValueError, AttributeError) as error:
        raise Damaged(f"{path.name} ({error})") from None
    # Stable, so that of a step that is there twice (a run resumed by hand) the last line counts.
    order = np.argsort(steps, kind="stable")
    last = np.append(np.diff(steps[order]) > 0, True) if len(order) else np.zeros(0, bool)
    order = order[last]
    return Curve(steps[order], rst_s[order], loss[order])
