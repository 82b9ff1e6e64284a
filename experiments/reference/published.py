"""References that others have measured and published, as tables of seconds by number of layers."""

import dataclasses
import itertools
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

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
from models.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series:
    """Seconds of one kind of call by number of layers, on one device."""

    family: str
    kind: str
    # Optimisers that the seconds are charged for; empty for calls without one.
    optimizers: tuple[str, ...]
    device: str
    versions: Mapping[str, str]
    # Sequences of the call that was measured.
    sequences: int
    # A larger call is charged as several of that size; else only that size has a figure.
    divisible: bool
    # What the model and its input must be, by field.
    model: Mapping[str, Any]
    # Kinds of further calls that the seconds hold already.
    includes: tuple[str, ...]
    # By number of layers, increasing.
    seconds: Mapping[int, float]
    # Published figures that are not used: layers → (figure, why).
    left_out: Mapping[int, tuple[float, str]]

    def check(self, where: str) -> None:
        """Raises UserError that names the entry which cannot be right."""
        name = f"{where}: {self.family}/{self.kind}"
        if not self.seconds:
            raise UserError(f"{name}: no entry.")
        if not self.device or not self.versions:
            raise UserError(f"{name}: the device and its versions must be stated.")
        if self.sequences < 1:
            raise UserError(f"{name}: sequences={self.sequences} must be at least 1.")
        for layers, seconds in self.seconds.items():
            check_seconds(f"{name}/{layers} layers", seconds)
        pairs = itertools.pairwise(sorted(self.seconds.items()))
        for (fewer, less), (more, greater) in pairs:
            if greater <= less:
                raise UserError(
                    f"{name}/{more} layers: {greater} s is not above the {less} s of {fewer} "
                    "layers; one of the two is wrong. Move it to left_out, with the reason."
                )

    def at(self, layers: float) -> tuple[float, float, float, str]:
        """(seconds, low, high, how) of one call.

        A figure that was left out lies between its neighbours, and so does a mean number of layers.
        """
        if layers in self.seconds:
            found = self.seconds[int(layers)]
            return found, found, found, f"published for {self.device}"
        fewer = max((one for one in self.seconds if one < layers), default=None)
        more = min((one for one in self.seconds if one > layers), default=None)
        is_mean = layers != int(layers)
        if fewer is None or more is None or not (is_mean or layers in self.left_out):
            known = ", ".join(str(one) for one in sorted(self.seconds))
            raise UserError(f"no figure for {layers} layers (there are {known}).")
        low, high = self.seconds[fewer], self.seconds[more]
        middle = low + (high - low) * (layers - fewer) / (more - fewer)
        if is_mean:
            return middle, low, high, f"{layers:g} layers on average, published for {self.device}"
        published, why = self.left_out[int(layers)]
        how = f"between {fewer} and {more} layers; the published {published} s is not used: {why}"
        return middle, low, high, how


class Published(Reference):
    """A reference that is a table: it has figures for exactly the programs that were published."""

    kind = "published"

    def __init__(
        self, name: str, series: tuple[Series, ...], source: str, uncharged: Mapping[str, str]
    ):
        self.name = name
        self.series = series
        self.source = source
        # Kinds of calls that it charges nothing for → why.
        self._uncharged = uncharged

    @classmethod
    def read(cls, stored: Mapping[str, Any], path: pathlib.Path) -> "Published":
        """Reads and checks a table; raises UserError that names a doubtful or missing entry."""
        with naming_damage(path, "reference table"):
            found = cls(
                stored["name"],
                tuple(_series(one) for one in stored["series"]),
                stored["source"],
                dict(stored.get("uncharged", {})),
            )
        for one in found.series:
            one.check(str(path))
        return found

    def known(self, program: ProgramId) -> Converted:
        if why := self._uncharged.get(program.kind):
            return Converted(0.0, 0.0, 0.0, f"not charged: {why}")
        if running := program.details.get("running_layers"):
            # A step that drops layers is a step of fewer layers.
            return self.known(
                dataclasses.replace(
                    program,
                    kind="train",
                    layers=running,
                    details={**program.details, "running_layers": None},
                )
            )
        optimizer = program.details.get("optimizer")
        for one in self.series:
            same = one.family == program.family and optimizer in one.optimizers
            if same and program.kind in one.includes:
                return Converted(0.0, 0.0, 0.0, f"in the published figure of {one.kind}")
        series = self._series_of(program)
        calls, rest = divmod(program.sequences, series.sequences)
        if rest or (calls != 1 and not series.divisible):
            multiple = "a multiple of " if series.divisible else ""
            raise UserError(
                f"--reference {self.name}: {program}: its figures are for {multiple}"
                f"{series.sequences} sequences a call."
            )
        try:
            seconds, low, high, how = series.at(program.layers)
        except UserError as error:
            raise UserError(f"--reference {self.name}: {program}: {error}") from None
        if calls > 1:
            how += f", {calls} × {series.sequences} sequences"
        return Converted(calls * seconds, calls * low, calls * high, how)

    def _from_here(
        self,
        program: ProgramId,
        here: TimedHere,
        cost: Cost,
        anchor: Callable[[], Anchor] | None,
    ) -> Converted:
        return self.known(program)  # Which raises where it has no figure.

    def facts(self) -> dict[str, Any]:
        devices = {one.family: {"device": one.device, **one.versions} for one in self.series}
        return super().facts() | {"source": self.source, "devices": devices}

    def _series_of(self, program: ProgramId) -> Series:
        def refuse(why: str) -> UserError:
            return UserError(f"--reference {self.name}: no figure for {program}: {why}")

        family = [one for one in self.series if one.family == program.family]
        if not family:
            known = ", ".join(sorted({one.family for one in self.series}))
            raise refuse(f"it has {known}.")
        kinds = [one for one in family if one.kind == program.kind]
        if not kinds:
            known = ", ".join(sorted({one.kind for one in family}))
            raise refuse(f"for {program.family} it has {known}.")
        optimizer = program.details.get("optimizer")
        fit = [one for one in kinds if not one.optimizers or optimizer in one.optimizers]
        if not fit:
            known = ", ".join(name for one in kinds for name in one.optimizers)
            raise refuse(f"it has {known}.")
        series = fit[0]
        for field, value in series.model.items():
            if program.details.get(field) != value:
                raise refuse(f"its {field} is {value}, here {program.details.get(field)}.")
        return series


def _series(stored: Mapping[str, Any]) -> Series:
    return Series(
        family=stored["family"],
        kind=stored["kind"],
        optimizers=tuple(stored["optimizers"]),
        device=stored["device"],
        versions=stored["versions"],
        sequences=int(stored["sequences"]),
        divisible=bool(stored["divisible"]),
        model=stored["model"],
        includes=tuple(stored.get("includes", ())),
        seconds={int(layers): float(s) for layers, s in stored["seconds"].items()},
        left_out={
            int(layers): (float(one["published"]), str(one["why"]))
            for layers, one in stored.get("left_out", {}).items()
        },
    )
