"""The picture of a comparison says what the verdicts say, also of what it has no room for."""

import pathlib

import pytest

from experiments.comparison.compare import Options, compare
from experiments.comparison.simulate import Planted, World, simulate
from experiments.report.picture import check_picture, picture, write_picture
from models.errors import UserError

METHODS = [
    Planted(name="better", lower_by=0.05),
    Planted(name="same"),
    Planted(name="worse", lower_by=-0.05),
    Planted(name="hopeless", lower_by=-2.0),
    Planted(name="unsound", divergence=1.0),
]


@pytest.fixture(scope="module")
def comparison():
    runs = [
        simulate(World(), one, seed, budget=budget)
        for one in (Planted(), *METHODS)
        for seed in range(6)
        for budget in (1.0, 0.5)
    ]
    return compare(runs, options=Options(baseline="baseline", bootstrap=False))


def rows_in(part):
    """The rows of a panel, which all of its layers share."""
    parts = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    if isinstance(part, dict) and "verdict" in (part.get("values") or [{}])[0]:
        yield part["values"]
    for inner in parts:
        yield from rows_in(inner)


def test_every_method_stands_in_every_panel_with_its_verdict(comparison):
    spec = picture(comparison)
    assert len(spec["concat"]) == len(comparison.blocks) == 2
    found = [next(rows_in(panel)) for panel in spec["concat"]]
    for rows, block in zip(found, comparison.blocks, strict=True):
        drawn = {row["method"]: row for row in rows}
        for result in block.results:
            row = drawn[result.method.label]
            assert row["verdict"] == str(result.verdict.kind)
            if result.estimate:
                assert row["at"] == result.estimate.difference
        assert {name: row["shown"] for name, row in drawn.items()} == {
            "better": "point", "same": "point", "worse": "point", "hopeless": "left",
            "unsound": "words",
        }  # fmt: skip
        assert drawn["hopeless"]["label"] == "−2.00"
        assert drawn["unsound"]["label"] == "6 of 6 diverged"


def test_files_of_both_kinds_and_no_others(comparison, tmp_path):
    write_picture(tmp_path / "new" / "a.svg", comparison)
    drawn = (tmp_path / "new" / "a.svg").read_text()
    for text in ("hopeless", "cannot tell yet", "6 of 6 diverged", "How much better than baseline"):
        assert text in drawn
    write_picture(tmp_path / "a.png", comparison)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match=r"ends in .png or .svg"):
        check_picture(pathlib.Path("a.jpg"))
