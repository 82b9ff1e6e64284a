"""What to change in an experiment that does not fit, starting with what costs least."""

import dataclasses
from collections.abc import Iterator

from experiments.config import Experiment
from experiments.overrides import apply_overrides
from models.errors import UserError

# Share of the activations that is kept where the backward pass computes the rest again: a rough
# guide to what is worth compiling, which then decides.
_KEPT = {"none": 1.0, "dots": 0.5, "full": 0.15}
# Share of the memory that an estimate may fill.
_FILL = 0.9


@dataclasses.dataclass(frozen=True)
class Alternative:
    """A changed experiment, and the flags that make it."""

    experiment: Experiment
    settings: tuple[str, ...]
    estimated_bytes: float

    @property
    def flags(self) -> str:
        return " ".join(f"--set={setting}" for setting in self.settings)


def alternatives(
    experiment: Experiment, devices: int, state_bytes: float, used: float, capacity: float
) -> Iterator[Alternative]:
    """Experiments that should fit, in the order in which they are worth trying.

    `state_bytes` are parameters and optimiser state of one device, `used` all that was asked of it.
    First what changes nothing but the time of a step: smaller parts of a batch, activations that
    are computed again, parameters in shards; then smaller batches.
    """
    sizes = experiment.mesh.sizes(devices)
    batch, parts = experiment.train.batch_size, experiment.train.microbatches
    temporary = max(used - state_bytes, 0.0) / _KEPT[_remat(experiment)]
    seen = set()
    for batch_parts in _doublings(batch):
        for fsdp in (sizes["fsdp"], *_multiples(sizes["fsdp"], sizes["data"])):
            for remat in _stronger(_remat(experiment)):
                for more in _doublings(batch // batch_parts // parts):
                    settings = _settings(
                        experiment, sizes, batch // batch_parts, parts * more, fsdp, remat
                    )
                    shards = fsdp / sizes["fsdp"]
                    estimate = state_bytes / shards
                    estimate += temporary * _KEPT[remat] / (batch_parts * more)
                    if not settings or settings in seen or estimate > _FILL * capacity:
                        continue
                    seen.add(settings)
                    try:
                        changed = apply_overrides(experiment, settings)
                        changed.check()
                    except UserError:
                        continue
                    if _shares_evenly(changed, devices):
                        yield Alternative(changed, settings, estimate)


def _settings(
    experiment: Experiment,
    sizes: dict[str, int],
    batch: int,
    microbatches: int,
    fsdp: int,
    remat: str,
) -> tuple[str, ...]:
    found = []
    if batch != experiment.train.batch_size:
        found.append(f"train.batch_size={batch}")
    if microbatches != experiment.train.microbatches:
        found.append(f"train.microbatches={microbatches}")
    if remat != _remat(experiment):
        found.append(f"model.remat={remat}")
    if fsdp != sizes["fsdp"]:
        found.append(f"mesh.fsdp={fsdp}")
        if experiment.mesh.data != -1:
            found.append(f"mesh.data={sizes['data'] * sizes['fsdp'] // fsdp}")
    return tuple(found)


def _remat(experiment: Experiment) -> str:
    return experiment.model.remat


def _stronger(remat: str) -> tuple[str, ...]:
    known = tuple(_KEPT)
    return known[known.index(remat) :]


def _doublings(limit: int) -> list[int]:
    return [1 << power for power in range(max(limit, 1).bit_length()) if limit % (1 << power) == 0]


def _multiples(fsdp: int, data: int) -> list[int]:
    """Larger numbers of shards that the devices of the data axis can make."""
    return [fsdp * factor for factor in range(2, data + 1) if data % factor == 0]


def _shares_evenly(experiment: Experiment, devices: int) -> bool:
    sizes = experiment.mesh.sizes(devices)
    together = experiment.train.batch_size // experiment.train.microbatches
    return together % (sizes["replica"] * sizes["data"] * sizes["fsdp"]) == 0
