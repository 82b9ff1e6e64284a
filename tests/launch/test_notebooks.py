"""The notebooks: committed without outputs, and each runs from top to bottom on a CPU."""

import json
import pathlib
import time

import pytest

COLAB = pathlib.Path(__file__).parents[2] / "launch" / "colab"
NOTEBOOKS = sorted(path.stem for path in COLAB.glob("*.ipynb"))

# What the outputs must show.
SHOWN = {
    "main_job": ["validation loss", "sparsity 0.6057", "weights off target 0", "report.html"],
    "scaling_law": ["a_S", "image/png"],
    "compare_methods": ["sparse_t5_50", "Page:", "baseline"],
    "fff_against_dense": ["faster, 256 tokens, by baseline", "image/png", "fff_bert_1x7"],
}


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_is_committed_without_outputs(name):
    notebook = json.loads((COLAB / f"{name}.ipynb").read_text())
    for cell in notebook["cells"]:
        assert not cell.get("outputs") and cell.get("execution_count") is None
        assert "def " not in "".join(cell["source"]), "a notebook calls what the suite has"


def test_every_notebook_is_checked():
    assert set(NOTEBOOKS) == set(SHOWN)


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_runs_from_top_to_bottom(name, cache, tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="pip install -e '.[notebooks]'")
    pytest.importorskip("ipykernel", reason="pip install -e '.[notebooks]'")
    nbformat = pytest.importorskip("nbformat")
    monkeypatch.setenv("KPD_CACHE", str(cache))
    monkeypatch.setenv("KPD_WORKDIR", str(tmp_path / "runs"))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    notebook = nbformat.read(COLAB / f"{name}.ipynb", as_version=4)
    begun = time.monotonic()
    client = nbclient.NotebookClient(
        notebook, timeout=280, resources={"metadata": {"path": str(COLAB)}}
    )
    client.execute()
    assert time.monotonic() - begun < 300
    outputs = json.dumps([cell.get("outputs", []) for cell in notebook.cells])
    for part in SHOWN[name]:
        assert part in outputs, (part, outputs[-2000:])
    assert "Traceback" not in outputs
