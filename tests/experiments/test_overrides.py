"""`--set path=value`: what it does, and what its errors say."""

import dataclasses

import pytest

from experiments.overrides import apply_overrides
from models.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float = 1.0
    width: int = 4
    on: bool = False
    label: str = "x"
    names: tuple[str, ...] = ("a",)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Outer:
    name: str = "toy"
    inner: Inner = Inner()
    maybe: Inner | None = None
    limit: int | None = 3


def test_values_take_the_type_of_their_field():
    changed = apply_overrides(
        Outer(),
        ["inner.rate=1e-3", "inner.width=8", "inner.on=true", "inner.names=p,q", "limit=none"],
    )
    assert changed == Outer(inner=Inner(rate=1e-3, width=8, on=True, names=("p", "q")), limit=None)


def test_value_may_hold_an_equals_sign():
    assert apply_overrides(Outer(), ["inner.label=a=b"]).inner.label == "a=b"


@pytest.mark.parametrize(
    ("assignments", "parts"),
    [
        (["inner.rat=2"], ["--set inner.rat=2", "no field rat", "Did you mean inner.rate?"]),
        (["iner.rate=2"], ["no field iner", "Did you mean inner.rate?"]),
        (["width=2"], ["no field width", "Did you mean inner.width?"]),
        (["zzz=2"], ["no field zzz", "Known here: name, inner, maybe, limit."]),
        (["inner.width=2.5"], ["'2.5' is not a whole number"]),
        (["inner.rate=fast"], ["'fast' is not a number"]),
        (["inner.rate=inf"], ["'inf' is not finite"]),
        (["inner.on=yes"], ["'yes' is not true or false"]),
        (["inner.rate=1", "inner.rate=2"], ["inner.rate is set twice"]),
        (["maybe.rate=1"], ["maybe is None in toy"]),
        (["inner=3"], ["inner is a group", "rate, width"]),
        (["inner.rate.x=3"], ["rate has no fields"]),
        (["inner.rate"], ["write path=value"]),
        (["=3"], ["write path=value"]),
    ],
)
def test_errors_say_what_is_wrong(assignments, parts):
    with pytest.raises(UserError) as caught:
        apply_overrides(Outer(), assignments)
    for part in parts:
        assert part in str(caught.value)
