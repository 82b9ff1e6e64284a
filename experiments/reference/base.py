"""What a reference device is asked: the seconds that it needs for one call of a program."""

import abc
import contextlib
import dataclasses
import hashlib
import json
import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

from models.errors import UserError


@dataclasses.dataclass(frozen=True)
class ProgramId:
    """One compiled program, as a table of a reference device names it."""

    # "bert", "t5" or "vit".
    family: str
    # What a call does: "train" (an update), "forward" (losses only), "hessian".
    kind: str
    # Layers that run; of T5 those of the encoder.
    layers: float
    # Sequences (or images) of one call.
    sequences: int
    # Hex digits, equal for equal programs: all that decides what is compiled.
    key: str
    # Sizes and settings by name, which published tables are checked against.
    details: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        optimizer = self.details.get("optimizer")
        using = f", {optimizer}" if optimizer and self.kind == "train" else ""
        return f"{self.family} {self.kind}, {self.layers} layers, {self.sequences} a call{using}"


def program_key(description: Mapping[str, Any], kind: str) -> str:
    """Twelve hex digits of a program's description and kind.

    Entries that are None are left out, so that keys stay when a description learns new ones.
    """
    text = json.dumps({"kind": kind, **_without_none(description)}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return value


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one call of a compiled program does, from its cost analysis."""

    flops: float
    # Bytes that its kernels read and write.
    bytes: float
    # Kernels that it starts.
    kernels: float = 0.0
    # Exponentials, tangents and their like, of single numbers.
    functions: float = 0.0


class TimedHere(Protocol):
    """Seconds of one call on this device, with half their interquartile range over the median."""

    @property
    def seconds(self) -> float: ...

    @property
    def relative_spread(self) -> float: ...


class Anchor(NamedTuple):
    """The plain program that a program is timed against here, with its own time and cost."""

    program: ProgramId
    here: TimedHere
    cost: Cost


@dataclasses.dataclass(frozen=True)
class Converted:
    """Reference seconds of one call of a program, between `low` and `high`, and where from."""

    seconds: float
    low: float
    high: float
    how: str

    @classmethod
    def measured(cls, timed: TimedHere, how: str) -> "Converted":
        """A time as it was measured, with its spread on either side."""
        margin = timed.seconds * timed.relative_spread
        return cls(timed.seconds, timed.seconds - margin, timed.seconds + margin, how)


def check_seconds(where: str, seconds: float) -> None:
    """Raises UserError that names an entry which is no time."""
    if not (math.isfinite(seconds) and seconds > 0):
        raise UserError(f"{where}: {seconds} s is not a time.")


@contextlib.contextmanager
def naming_damage(path: pathlib.Path, what: str, advice: str = "") -> Iterator[None]:
    """Turns what reading a damaged file raises into a UserError."""
    try:
        yield
    except UserError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path}: damaged {what} ({type(error).__name__}: {error}){advice}."
        ) from None


class Reference(abc.ABC):
    """A device in whose seconds budgets are counted (reference-system time, RST).

    RST of a run = Σ over its calls of the reference seconds of their program; the device that runs
    it contributes nothing but the number of calls (Kaddour et al. 2023, arXiv 2307.06440, section
    2).
    """

    name: str
    # "rst": reference seconds; "wall": this device's own, whatever it is.
    account: str = "rst"
    # What a reader of the run has to know, one line each.
    warnings: tuple[str, ...] = ()
    kind: ClassVar[str]

    @abc.abstractmethod
    def known(self, program: ProgramId) -> Converted | None:
        """The figure of a program that needs no measurement here; None where there is none."""

    def convert(
        self,
        program: ProgramId,
        here: TimedHere,
        cost: Cost,
        anchor: Callable[[], Anchor] | None = None,
    ) -> Converted:
        """Reference seconds of a call that takes `here` on this device.

        `anchor` gives, where it is asked for, the plain program that the time was measured against:
        a reference with a figure of that one converts the ratio of the two and not the time.

        Raises UserError where this reference can say nothing about the program.
        """
        return self.known(program) or self._from_here(program, here, cost, anchor)

    @abc.abstractmethod
    def _from_here(
        self,
        program: ProgramId,
        here: TimedHere,
        cost: Cost,
        anchor: Callable[[], Anchor] | None,
    ) -> Converted:
        """As `convert`, of a program whose figure is not known."""

    def facts(self) -> dict[str, Any]:
        """What config.json keeps of the reference."""
        return {
            "name": self.name,
            "kind": self.kind,
            "account": self.account,
            "warnings": list(self.warnings),
        }

    def check_same(self, begun: Mapping[str, Any], folder: pathlib.Path) -> None:
        """Raises UserError where a run that has begun counts in other seconds than these."""
        for flag, was, now in (
            ("reference", begun["name"], self.name),
            ("account", begun.get("account", "rst"), self.account),
        ):
            if was != now:
                raise UserError(
                    f"--{flag}={now}: {folder} was begun with --{flag}={was}, and its steps are "
                    f"planned by that. Give --{flag}={was}, another --workdir, or --force."
                )


class ThisDevice(Reference):
    """The device of the run itself, ratio 1."""

    kind = "here"

    def __init__(self, account: str = "rst"):
        self.name = "here"
        self.account = account

    def known(self, program: ProgramId) -> Converted | None:
        return None

    def _from_here(
        self,
        program: ProgramId,
        here: TimedHere,
        cost: Cost,
        anchor: Callable[[], Anchor] | None,
    ) -> Converted:
        return Converted.measured(here, "measured on this device")
