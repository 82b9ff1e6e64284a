"""Reading points: what is accepted, and what each bad input says."""

import json

import numpy as np
import pytest

from models.errors import UserError
from sparsity.law.points import few_values
from sparsity.law.read_csv import read_csv
from sparsity.law.read_runs import read_runs
from tests.sparsity.law.planted import PUBLISHED_POINTS, needs_published_points, points, write_csv


@needs_published_points
def test_published_points_are_two_families():
    vit, t5 = read_csv(PUBLISHED_POINTS, {})
    assert (vit.name, len(vit), vit.data_unit) == ("vit_jft", 112, "images")
    assert (t5.name, len(t5), t5.data_unit) == ("t5_c4", 48, "tokens")


def test_csv_round_trip(tmp_path):
    given = points(worth={"2:4": (0.5, 1.6)})
    (found,) = read_csv(write_csv(tmp_path / "mine.csv", given), {})
    assert found.name == "mine"
    assert found.patterns == ("2:4",)
    for column in ("sparsity", "size", "data", "loss", "pattern"):
        np.testing.assert_array_equal(getattr(found, column), getattr(given, column))


def test_columns_can_be_named(tmp_path):
    path = write_csv(tmp_path / "mine.csv", points())
    path.write_text(path.read_text().replace("val_loss", "xent"))
    with pytest.raises(UserError, match=r"no column val_loss.* for loss.*--columns loss=NAME"):
        read_csv(path, {})
    (found,) = read_csv(path, {"loss": "xent"})
    assert len(found) == 48
    with pytest.raises(UserError, match=r"no column xnt for loss\. Did you mean xent"):
        read_csv(path, {"loss": "xnt"})


def edited(tmp_path, row, column, value):
    """A good CSV with one cell changed."""
    path = write_csv(tmp_path / "mine.csv", points())
    lines = [line.split(",") for line in path.read_text().splitlines()]
    lines[row][lines[0].index(column)] = value
    path.write_text("\n".join(map(",".join, lines)) + "\n")
    return path


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("val_loss", "nan", "line 4: loss is missing or not a number"),
        ("val_loss", "", "line 4: loss is missing or not a number"),
        ("val_loss", "inf", "line 4: loss is inf, but validation loss must be a finite"),
        ("val_loss", "0", "line 4: loss is 0, but validation loss must be above 0"),
        ("val_loss", "-2", "line 4: loss is -2, but validation loss must be above 0"),
        ("val_loss", "abc", "line 4: val_loss is 'abc', not a number"),
        ("nonzero_params", "0", "line 4: N is 0, but non-zero weights must be above 0"),
        ("data", "-1", "line 4: D is -1, but data must be above 0"),
        ("sparsity", "1", "line 4: S is 1, but sparsity must be below 1"),
        ("sparsity", "-0.5", "line 4: S is -0.5, but sparsity must be at least 0"),
        ("sparsity", "75", "line 4: S is 75, .* 75 % as 0.75"),
        ("pattern", "4:2", "pattern '4:2': give n:m with 0 < n < m"),
        ("pattern", "4:4", "pattern '4:4': give n:m with 0 < n < m"),
        ("pattern", "1:4", "line 4: S is 0, but a 1:4 run is 0.75 sparse"),
    ],
)
def test_bad_cells(tmp_path, column, value, message):
    with pytest.raises(UserError, match=message):
        read_csv(edited(tmp_path, 3, column, value), {})


def test_how_many_others_are_bad(tmp_path):
    path = write_csv(tmp_path / "mine.csv", points())
    path.write_text(path.read_text().replace(",0.75,", ",1.75,"))
    with pytest.raises(UserError, match=r"\(and 11 more\)"):
        read_csv(path, {})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no column nonzero_params .* It has: no header"),
        ("nonzero_params,sparsity,data,val_loss\n", "no points in it"),
    ],
)
def test_empty_files(tmp_path, text, message):
    path = tmp_path / "empty.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_csv(path, {})


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        read_csv(tmp_path / "none.csv", {})
    path = tmp_path / "binary.csv"
    path.write_bytes(b"\x89PNG\xff\xfe\x00")
    with pytest.raises(UserError, match="not a CSV"):
        read_csv(path, {})


def only(tmp_path, keep):
    """A CSV of the planted points for which keep(N, S, D) holds."""
    path = write_csv(tmp_path / "mine.csv", points())
    header, *lines = path.read_text().splitlines()
    kept = [line for line in lines if keep(*map(float, line.split(",")[:3]))]
    path.write_text("\n".join([header, *kept]) + "\n")
    return path


@pytest.mark.parametrize(
    ("keep", "message"),
    [
        (lambda n, s, d: n == 1e6 and s < 0.7, "6 points, but the law has 7 coefficients"),
        (lambda n, s, d: d == 1e9, "every point has D = 1e.09, so a_D, b_D and c cannot be told"),
        (lambda n, s, d: s == 0.5, "every point has S = 0.5, so a_S, b_S and c_S cannot be told"),
        (lambda n, s, d: n == 1e6, "every point has N = 1e.06, so a_S, c_S, b_N and c cannot"),
    ],
)
def test_what_cannot_be_identified(tmp_path, keep, message):
    with pytest.raises(UserError, match=message):
        read_csv(only(tmp_path, keep), {})


def test_two_values_are_a_warning(tmp_path):
    (found,) = read_csv(only(tmp_path, lambda n, s, d: s < 0.7 and d > 2e9), {})
    sparsity, data = few_values(found)
    assert sparsity.startswith("only two values of S (0, 0.5): a_S, b_S and c_S")
    assert data.startswith("only two values of D (8e+09, 6.4e+10): a_D, b_D and c")
    assert few_values(points()) == []


def write_runs(folder, given):
    """A folder of finished runs, as the training loop leaves them."""
    for i in range(len(given)):
        run = folder / "exp" / f"run{i}"
        run.mkdir(parents=True)
        sparse = given.sparsity[i] > 0
        pruning = {
            "rule": "magnitude",
            "sparsity": given.sparsity[i],
            "pattern": str(given.pattern[i]),
        }
        config = {"experiment": {"pruning": pruning if sparse else None}}
        summary = {
            "status": "finished",
            "params": {"nonzero": 1.0, "nonzero_without_embedding": given.size[i]},
            "sparsity": {"overall": 0.3, "target": 0.3} if sparse else None,
            "tokens": given.data[i],
            "data": "digest",
            "final": {"nll": given.loss[i], "loss": 9.0},
        }
        (run / "config.json").write_text(json.dumps(config))
        (run / "summary.json").write_text(json.dumps(summary))
    return folder


def test_runs_are_read_as_points(tmp_path):
    given = points(worth={"2:4": (0.5, 1.6)})
    found = read_runs(write_runs(tmp_path / "study", given))
    assert found.name == "study"
    order = np.argsort([f"run{i}" for i in range(len(given))])
    for column in ("sparsity", "size", "data", "loss", "pattern"):
        np.testing.assert_array_equal(getattr(found, column), getattr(given, column)[order])


def changed_run(tmp_path, name, change):
    folder = write_runs(tmp_path / "study", points())
    path = folder / "exp" / "run7" / name
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return folder


def test_unfinished_runs_are_left_out(tmp_path):
    folder = changed_run(tmp_path, "summary.json", lambda run: run.update(status="interrupted"))
    assert len(read_runs(folder)) == 47


def test_runs_that_started_from_trained_weights_are_left_out(tmp_path):
    folder = changed_run(tmp_path, "summary.json", lambda run: run.update(init={"run": "x"}))
    assert len(read_runs(folder)) == 47


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: run["final"].clear(), "run7/summary.json: no field final.nll"),
        (lambda run: run["final"].update(nll="low"), "final.nll is 'low', not a number"),
        (lambda run: run.update(data="other"), "run7 was trained on other data than run0"),
        (lambda run: run["final"].update(nll=float("nan")), "run7/summary.json: loss is missing"),
    ],
)
def test_bad_runs(tmp_path, change, message):
    with pytest.raises(UserError, match=message):
        read_runs(changed_run(tmp_path, "summary.json", change))


def test_damaged_and_missing_run_files(tmp_path):
    folder = write_runs(tmp_path / "study", points())
    with pytest.raises(UserError, match="no such folder"):
        read_runs(tmp_path / "none")
    (folder / "exp" / "run7" / "summary.json").write_text('{"status": "fin')
    with pytest.raises(UserError, match=r"run7/summary\.json: damaged"):
        read_runs(folder)
    (folder / "exp" / "run7" / "summary.json").write_text("[]")
    with pytest.raises(UserError, match=r"run7/summary\.json: not a JSON object"):
        read_runs(folder)
    (folder / "exp" / "run7" / "summary.json").unlink()
    (folder / "exp" / "run8" / "config.json").unlink()
    with pytest.raises(UserError, match=r"run8/config\.json: missing"):
        read_runs(folder)
    (folder / "exp" / "run8" / "config.json").write_text('{"experiment": {}}')
    with pytest.raises(UserError, match=r"run8/config\.json: no field experiment\.pruning"):
        read_runs(folder)
    with pytest.raises(UserError, match=r"0 summary\.json below it"):
        read_runs(tmp_path / "study" / "exp" / "run7")
