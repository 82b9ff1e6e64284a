"""The command line from end to end, on a small CSV and on the published coefficients."""

import csv
import json
import pathlib
import subprocess
import sys

import pytest

from sparsity import scaling_law
from tests.sparsity.law.planted import LAW, points, write_csv

QUICK = ("--resamples=40", "--starts=20")


@pytest.fixture
def table(tmp_path):
    worth = {"2:4": (0.5, 1.5), "1:4": (0.75, 1.2)}
    return write_csv(tmp_path / "mine.csv", points(noise=0.004, worth=worth))


@pytest.fixture
def call(capsys):
    def run(*words):
        scaling_law.main(scaling_law.parse(["scaling_law", *map(str, words)]))
        return capsys.readouterr().out

    return run


def test_fit(call, table, tmp_path):
    out = tmp_path / "out"
    shown = call("fit", f"--points={table}", f"--out={out}", *QUICK)
    for words in ("objective", "of 20 starts", "gradient", "largest D, never seen", "2:4", "b_D"):
        assert words in shown
    (law,) = json.loads((out / "fit.json").read_text())["laws"]
    by_name = {row["name"]: row["estimate"] for row in law["coefficients"]}
    assert by_name["b_N"]["value"] == pytest.approx(LAW.b_N, rel=0.1)
    assert by_name["b_N"]["low"] < by_name["b_N"]["median"] < by_name["b_N"]["high"]
    assert law["patterns"][0]["multiplier"]["value"] == pytest.approx(1.5, rel=0.05)
    rows = list(csv.reader((out / "profiles-mine.csv").open()))
    assert rows[0] == ["coefficient", "value", "rise"]
    assert {row[0] for row in rows[1:]} == set(LAW._fields)
    for suffix in (".png", ".svg"):
        assert (out / f"profiles-mine{suffix}").stat().st_size > 10_000


def test_fit_compares_with_published_coefficients(call, table):
    shown = call("fit", f"--points={table}", "--compare=t5_c4", *QUICK)
    assert "NOT the minimiser" in shown


def test_optimal_answers_with_intervals(call, table):
    words = ("optimal", f"--points={table}", "--params=7e9", "--overtrain=14", *QUICK)
    (law,) = json.loads(call(*words, "--json"))["laws"]
    for accounting in ("skipped", "computed"):
        answer = law["answer"][accounting]
        assert answer["multiple"]["value"] == pytest.approx(14.0)
        assert 0 < answer["sparsity"]["low"] <= answer["sparsity"]["value"]
        assert answer["sparsity"]["value"] <= answer["sparsity"]["high"] < 1
        assert answer["equal_data_size"]["value"] > 7e9
    assert answer["sparsity"]["value"] < law["answer"]["skipped"]["sparsity"]["value"]
    assert any("extrapolation" in note for note in law["notes"])


def test_published_coefficients_have_no_interval_and_say_so(call):
    shown = call("optimal", "--params=7e9", "--overtrain=14", "--family=t5_c4")
    assert "no interval: published coefficients only" in shown
    assert "28.6 %" in shown and "62.2 %" in shown and "71.1" in shown
    assert "not the minimiser" in shown


def test_equivalent_stands_beside_the_published_figures(call):
    shown = call("equivalent")
    for figure in ("1.6×", "2.16×", "2×", "3×", "5×", "70×", "2.17", "2.46", "71.1"):
        assert figure in shown


def test_contours_write_pictures_and_numbers(call, table, tmp_path):
    out = tmp_path / "out"
    shown = call("contours", f"--points={table}", f"--out={out}", *QUICK)
    for suffix in (".png", ".svg", ".csv"):
        path = out / f"contours-mine{suffix}"
        assert path.stat().st_size > 5_000 and str(path) in shown
    rows = list(csv.DictReader((out / "contours-mine.csv").open()))
    assert {(row["accounting"], row["sparsity"]) for row in rows} >= {
        ("skipped", "0.5"),
        ("computed", "0.875"),
        ("computed", "0.0"),
    }
    for row in rows:
        assert float(row["flops_low"]) <= float(row["flops_high"])


def test_next_proposes_runs_within_the_budget(call, table):
    words = ("next", f"--points={table}", "--figure=equivalent_75", "--budget=1e20", *QUICK)
    (law,) = json.loads(call(*words, "--json"))["laws"]
    assert 0 < law["plan"]["cost"] <= 1e20
    assert law["plan"]["spread_after"] < law["plan"]["spread_before"]
    shown = call(*words)
    assert "run next" in shown and "best single runs" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["fti"], "invalid choice: 'fti' (choose from 'fit', 'optimal'"),
        ([], "required: COMMAND"),
        (["fit"], "give the points, by --points=CSV or --runs=FOLDER"),
        (["fit", "--points=nowhere.csv"], "--points=nowhere.csv: no such file"),
        (["fit", "--runs=nowhere"], "--runs=nowhere: no such folder"),
        (["fit", "--points=a", "--runs=b"], "--points and --runs: give one of them"),
        (["fit", "--points=a", "--delta=0"], "--delta=0: give a number above 0"),
        (["fit", "--points=a", "--starts=0"], "--starts=0: give at least 1"),
        (["fit", "--points=a", "--resamples=3"], "--resamples=3: give at least 20"),
        (["fit", "--points=a", "--flat=2"], "--flat=2: give a fraction"),
        (["fit", "--points=a", "--columns=M=x"], "--columns=M=x: give KEY=NAME with KEY one of"),
        (["optimal", "--family=t5"], "no published law of that name. Did you mean t5_c4?"),
        (["optimal", "--params=7e9"], "give the budget too"),
        (["optimal", "--overtrain=14"], "need --params"),
        (["optimal", "--params=-1", "--overtrain=14"], "--params=-1: give a number above 0"),
        (["optimal", "--params=x"], "invalid float value: 'x'"),
        (["contours", "--sizes", "5", "2"], "give two numbers, 0 < LOW < HIGH"),
        (["next", "--figure=computed50"], "no such figure. Did you mean computed_50?"),
        (["next", "--budget=0"], "--budget=0: give training FLOPs above 0"),
        (["next", "--sparsities", "1"], "--sparsities 1: give fractions from 0 to below 1"),
    ],
)
def test_bad_input_is_two_lines_and_code_2(words, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        scaling_law.main(scaling_law.parse(["scaling_law", *words]))
    shown = capsys.readouterr()
    assert stopped.value.code == 2
    assert message in shown.err and "Traceback" not in shown.err
    assert shown.out == "" and len(shown.err.splitlines()) <= 2


def test_a_folder_that_cannot_be_made(call, table, capsys):
    with pytest.raises(SystemExit):
        call("contours", f"--out={table}/below")
    assert "below: cannot be made (Not a directory)" in capsys.readouterr().err


def test_unknown_family_of_points(call, table, capsys):
    with pytest.raises(SystemExit):
        call("equivalent", f"--points={table}", "--family=min")
    assert "Did you mean mine?" in capsys.readouterr().err


def test_as_a_module_it_exits_with_2_and_needs_no_jax_to_answer():
    root = pathlib.Path(__file__).parents[3]
    bad = subprocess.run(
        [sys.executable, "-m", "sparsity.scaling_law", "fit", "--points=nowhere.csv"],
        capture_output=True,
        text=True,
        cwd=root,
    )
    assert bad.returncode == 2 and bad.stderr.count("\n") == 1
    code = (
        "import sys\nfrom sparsity import scaling_law as s\n"
        "s.main(s.parse(['s', 'optimal', '--params=7e9', '--overtrain=14']))\n"
        "print(*sys.modules)"
    )
    good = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, check=True
    )
    assert not {"jax", "tensorflow", "matplotlib"} & set(good.stdout.split())
