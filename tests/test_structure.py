"""The shape of the project: who imports whom, and no configuration field that nothing reads."""

import ast
import dataclasses
import pathlib
import subprocess
import sys

import pytest

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from fff.config import FFFConfig
from models.config import BertConfig, HeadConfig, MeshConfig, T5Config, ViTConfig
from sparsity.config import PruningConfig

ROOT = pathlib.Path(__file__).parent.parent
# launch → experiments → {sparsity, fff} → models
MAY_IMPORT = {
    "models": set(),
    "sparsity": {"models"},
    "fff": {"models"},
    "experiments": {"models", "sparsity", "fff"},
    "launch": {"models", "sparsity", "fff", "experiments"},
}
ROOMS = {*MAY_IMPORT, "tests"}


def imported_rooms(source: str) -> set[str]:
    rooms = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            rooms |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            rooms.add(node.module.split(".")[0])
    return rooms & ROOMS


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_imports_follow_the_design(room):
    for path in (ROOT / room).rglob("*.py"):
        forbidden = imported_rooms(path.read_text()) - MAY_IMPORT[room] - {room}
        assert not forbidden, f"{path.relative_to(ROOT)} imports {forbidden}"


def test_forbidden_import_is_seen():
    assert imported_rooms("def f():\n    from launch import plan\n") == {"launch"}


def attributes_read() -> set[str]:
    """Every attribute name that is read outside of the checks of configurations."""
    names = set()
    for room in MAY_IMPORT:
        for path in (ROOT / room).rglob("*.py"):
            tree = ast.parse(path.read_text())
            checks = {
                id(inner)
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef) and node.name.lstrip("_").startswith("check")
                for inner in ast.walk(node)
            }
            names |= {
                node.attr
                for node in ast.walk(tree)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Load)
                and id(node) not in checks
            }
    return names


@pytest.mark.parametrize(
    "config",
    [
        Experiment,
        OptimizerConfig,
        TrainConfig,
        DataConfig,
        T5Config,
        BertConfig,
        ViTConfig,
        HeadConfig,
        MeshConfig,
        PruningConfig,
        FFFConfig,
    ],
)
def test_every_configuration_field_is_read(config):
    unread = {field.name for field in dataclasses.fields(config)} - attributes_read()
    assert not unread, f"{config.__name__} has fields that nothing reads: {unread}"


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return {name.split(".")[0] for name in done.stdout.split()}


def test_list_needs_neither_jax_nor_tensorflow():
    loaded = modules_after("from experiments.registry import all_experiments; all_experiments()")
    assert not loaded & {"jax", "tensorflow", "seqio", "flax"}


def test_training_imports_no_tensorflow():
    loaded = modules_after("import experiments.run")
    assert "jax" in loaded
    assert not loaded & {"tensorflow", "seqio", "tensorflow_datasets"}
