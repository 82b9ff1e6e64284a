"""What `experiments.calibrate` measures of a device, as a file and as a reference."""

import dataclasses
import itertools
import math
import pathlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from experiments.device import Device
from experiments.reference.base import (
    Anchor,
    Converted,
    Cost,
    ProgramId,
    Reference,
    TimedHere,
    check_seconds,
    naming_damage,
)
from experiments.reference.convert import KINDS, Workload, convert
from models.errors import UserError

# A larger spread says that the machine was busy with something else.
MAX_SPREAD = 0.10


@dataclasses.dataclass(frozen=True)
class MeasuredProgram:
    """Seconds of one call of a program on a device."""

    id: ProgramId
    seconds: float
    relative_spread: float
    cost: Cost


@dataclasses.dataclass(frozen=True, kw_only=True)
class Calibration:
    """A device profile: the fixed workloads, and the baselines' programs, in its seconds."""

    name: str
    device: Device
    # Of packages and drivers.
    versions: Mapping[str, str]
    # UTC, ISO 8601.
    made: str
    # How repeats were ended, and with what command.
    rule: str
    workloads: Mapping[str, Workload]
    # By program key.
    programs: Mapping[str, MeasuredProgram]

    def spreads(self) -> dict[str, float]:
        """Relative spread by name of everything measured."""
        found = {name: one.relative_spread for name, one in self.workloads.items()}
        return found | {str(one.id): one.relative_spread for one in self.programs.values()}

    def too_busy(self) -> list[str]:
        """Names whose spread is above what a quiet machine shows."""
        return [name for name, spread in self.spreads().items() if spread > MAX_SPREAD]

    def check(self, where: str) -> None:
        """Raises UserError that names the entry which cannot be right."""
        missing = {"jax", "jaxlib", "python"} - set(self.versions)
        if missing:
            raise UserError(f"{where}: versions of {', '.join(sorted(missing))} are not stated.")
        for kind in KINDS:
            if not any(one.kind == kind for one in self.workloads.values()):
                raise UserError(f"{where}: no workload of kind {kind}.")
        measured: list[tuple[str, TimedHere]] = [*self.workloads.items()]
        measured += [(str(program.id), program) for program in self.programs.values()]
        for name, one in measured:
            check_seconds(f"{where}: {name}", one.seconds)
            if not (math.isfinite(one.relative_spread) and one.relative_spread >= 0):
                raise UserError(f"{where}: {name}: {one.relative_spread} is not a spread.")
        self._check_monotone(where)

    def _check_monotone(self, where: str) -> None:
        """More layers, all else equal, and more of the same work never take less time."""
        rows = defaultdict(list)
        for program in self.programs.values():
            same = dataclasses.replace(program.id, layers=0, key="")
            group = (str(same), str(sorted(program.id.details.items())))
            rows[group].append((program.id.layers, program.seconds, str(program.id)))
        for name, one in self.workloads.items():
            work = (one.cost.flops, one.cost.bytes, one.cost.kernels, one.cost.functions)
            rows[one.kind, one.dtype].append((work[KINDS.index(one.kind)], one.seconds, name))
        for row in rows.values():
            for (less, sooner, _), (more, later, name) in itertools.pairwise(sorted(row)):
                if more > less and later <= sooner:
                    raise UserError(
                        f"{where}: {name}: {later:.4g} s for more work than takes {sooner:.4g} s; "
                        "measure anew on a quiet machine."
                    )

    def to_json(self) -> dict[str, Any]:
        stored = dataclasses.asdict(self)
        stored["workloads"] = {
            name: {**one._asdict(), "cost": dataclasses.asdict(one.cost)}
            for name, one in self.workloads.items()
        }
        return {"format": 1, "kind": "measured", **stored}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any], path: pathlib.Path) -> "Calibration":
        """Reads and checks; raises UserError that names a doubtful or missing entry."""
        advice = "; make it anew by python -m experiments.calibrate"
        with naming_damage(path, "calibration", advice):
            found = cls(
                name=stored["name"],
                device=Device(**stored["device"]),
                versions=stored["versions"],
                made=stored["made"],
                rule=stored["rule"],
                workloads={
                    name: Workload(**{**one, "cost": Cost(**one["cost"])})
                    for name, one in stored["workloads"].items()
                },
                programs={
                    key: MeasuredProgram(
                        ProgramId(**one["id"]),
                        one["seconds"],
                        one["relative_spread"],
                        Cost(**one["cost"]),
                    )
                    for key, one in stored["programs"].items()
                },
            )
            found.check(str(path))
        return found


class Calibrated(Reference):
    """A device that was calibrated: its own figures where it has them, converted ones elsewhere."""

    kind = "measured"

    def __init__(self, there: Calibration, here: Calibration | None, device: Device):
        """`here` is the calibration of `device`, on which runs are made; None where not made."""
        self.name = there.name
        self.there = there
        self._device = device
        self._same_device = there.device == device
        # Measured against itself a device has ratio 1, not the noise between two calibrations.
        self._here = there if self._same_device else here
        self.warnings = tuple(self._warn())

    def _warn(self) -> list[str]:
        warnings = []
        if self.there.device.jax != self._device.jax:
            warnings.append(
                f"reference {self.name} was calibrated with jax {self.there.device.jax}, this is "
                f"{self._device.jax}: the same program may compile to another."
            )
        for calibration in {id(c): c for c in (self.there, self._here) if c}.values():
            if busy := calibration.too_busy():
                warnings.append(
                    f"calibration {calibration.name} was made on a busy machine: spread of "
                    f"{busy[0]} {100 * calibration.spreads()[busy[0]]:.0f} %."
                )
        return warnings

    def known(self, program: ProgramId) -> Converted | None:
        found = self.there.programs.get(program.key)
        if found is None:
            return None
        how = f"measured on {self.there.device.kind} (reference {self.name})"
        return Converted.measured(found, how)

    def _from_here(
        self,
        program: ProgramId,
        here: TimedHere,
        cost: Cost,
        anchor: Callable[[], Anchor] | None,
    ) -> Converted:
        if self._here is None:
            raise UserError(
                f"--reference {self.name} has not measured {program}, and this device "
                f"({self._device.kind}) is not calibrated to convert it. Run python -m "
                "experiments.calibrate once."
            )
        found = self._by_workloads(program, here, cost)
        plain = anchor and anchor()
        measured = plain and self.known(plain.program)
        if not (plain and measured):
            return found
        # Two calibrations of one program differ by noise, by which a method and its baseline would
        # then differ too; and what the conversion gets wrong for both of them cancels.
        scale = measured.seconds / self._by_workloads(plain.program, plain.here, plain.cost).seconds
        seconds = found.seconds * scale
        return Converted(
            seconds,
            min(found.low, seconds),
            max(found.high, seconds),
            f"{found.how}; × {scale:.4f}, as the plain program is measured over converted",
        )

    def _by_workloads(self, program: ProgramId, here: TimedHere, cost: Cost) -> Converted:
        assert self._here is not None
        dtype = str(program.details.get("compute_dtype", "float32"))
        return convert(self._here.workloads, self.there.workloads, here, cost, dtype)

    def facts(self) -> dict[str, Any]:
        return super().facts() | {
            "device": dataclasses.asdict(self.there.device),
            "made": self.there.made,
            "calibrated_here": self._here and self._here.made,
        }
