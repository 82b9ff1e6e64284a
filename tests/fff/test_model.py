"""Models with fast feedforward layers: their sizes, their steps, and several devices."""

import dataclasses

import jax
import numpy as np
import pytest

from experiments.config import Experiment, OptimizerConfig, TrainConfig
from experiments.data.config import DataConfig
from experiments.data.objectives import batch_spec
from experiments.fff_bert import study_fff_bert, with_trees, without_feedforward
from experiments.network import build_network
from experiments.program import compile_program
from experiments.program_key import program_key
from experiments.registry import resolve
from fff import equal_time
from fff.config import FFFConfig, soft_leaves
from models.config import BertConfig, MeshConfig
from tests.fff.cases import needs_compiler

# Millions of parameters with a tied decoder: of the paper's code, by its formulas.
TOTALS = {
    "fff_bert_3072x0": 138.5,
    "fff_bert_1536x1": 176.3,
    "fff_bert_512x2": 151.1,
    "fff_bert_256x3": 157.4,
    "fff_bert_128x4": 160.6,
    "fff_bert_64x5": 162.1,
    "fff_bert_32x6": 162.9,
    "fff_bert_16x7": 163.3,
    "fff_bert_8x8": 163.5,
    "fff_bert_4x9": 163.6,
    "fff_bert_2x10": 163.6,
    "fff_bert_1x11": 163.7,
    "crammed_bert_3072": 138.5,
    "crammed_bert_4095": 163.6,
}


@pytest.mark.parametrize("name", TOTALS)
def test_numbers_of_parameters(name):
    params = jax.eval_shape(build_network(resolve(name, "paper")).init, jax.random.key(0))
    millions = sum(leaf.size for leaf in jax.tree.leaves(params)) / 1e6
    # Printed with one digit, and biases are in some of the printed totals only.
    assert abs(millions - TOTALS[name]) < 0.12


def test_without_feedforward_layers_only_attention_is_left():
    experiment = without_feedforward(resolve("crammed_bert", "demo"))
    params = jax.eval_shape(build_network(experiment).init, jax.random.key(0))
    assert "mlp" not in params["encoder"]["layers"]


SMALL = Experiment(
    name="small",
    scale="demo",
    budget="2steps",
    model=BertConfig(
        vocab_size=88,
        max_length=13,
        num_layers=1,
        model_dim=32,
        mlp_dim=96,
        num_heads=8,
        pooler=False,
    ),
    data=DataConfig(objective="mlm", inputs_length=13, mask_rate=0.3),
    optimizer=OptimizerConfig(
        schedule="constant", warmup_fraction=0.0, peak_learning_rate=1e-2, epsilon=1e-3
    ),
    train=TrainConfig(batch_size=16),
)
FORMS = {
    "dense": FFFConfig(trees=3, depth=3, init="uniform", training="dense"),
    "xla": FFFConfig(trees=3, depth=3, init="uniform", training="gather"),
    "soft": soft_leaves(32, 4),
}


def loss_and_weights(experiment, mesh):
    program = compile_program(dataclasses.replace(experiment, mesh=mesh))
    generator = np.random.default_rng(0)
    batch = {
        name: generator.integers(1, 80, shape).astype(dtype)
        if np.issubdtype(dtype, np.integer)
        else np.ones(shape, dtype)
        for name, (shape, dtype) in batch_spec(experiment.data, 16).items()
    }
    batch["masked_positions"] %= 13
    step = (np.float32(0), np.float32(0.5))
    state, sums = program.train_step(program.init_state(0), batch, *step)
    return float(sums["loss"][0]), jax.tree.map(np.asarray, state["params"])


@needs_compiler
def test_training_by_gathering_is_training_by_a_mask():
    losses, weights = zip(
        *(
            loss_and_weights(dataclasses.replace(SMALL, fff=FORMS[form]), MeshConfig(data=1))
            for form in ("dense", "xla")
        ),
        strict=True,
    )
    np.testing.assert_allclose(*losses, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), *weights)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["xla", "soft"])
def test_a_mesh_of_devices_trains_as_one(form):
    experiment = dataclasses.replace(SMALL, fff=FORMS[form])
    one = loss_and_weights(experiment, MeshConfig(data=1))
    many = loss_and_weights(experiment, MeshConfig(data=2, fsdp=2, tensor=2))
    np.testing.assert_allclose(one[0], many[0], rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=2e-4), one[1], many[1])


def test_flops_are_those_of_the_neurons_that_training_computes():
    shapes = {"tokens": (2, 13)}
    dense, gathered = (
        build_network(dataclasses.replace(SMALL, fff=FORMS[form])).forward_flops(shapes)
        for form in ("dense", "xla")
    )
    # A layer, 26 tokens, width 32, a product and a sum: 45 neurons, or 12 of them.
    assert dense["encoder/layers/mlp/node_in"] == 2 * 26 * 32 * 45
    assert gathered["encoder/layers/mlp/node_out"] == 2 * 26 * 32 * 12
    assert dense["encoder/layers/attention/query"] == gathered["encoder/layers/attention/query"]


def test_layers_have_times_of_their_own():
    keys = {program_key(dataclasses.replace(SMALL, fff=fff)) for fff in (None, *FORMS.values())}
    assert len(keys) == 4


def test_study_at_the_scale_of_the_demo(monkeypatch):
    monkeypatch.setattr("experiments.fff_bert.equal_time_width", lambda *_: 33)
    study = study_fff_bert("demo")
    assert len(study.runs) == 18 and {run.seed for run in study.runs} == {0, 1, 2}
    assert len({run.budget for run in study.runs}) == 1
    names = [run.name for run in study.runs[:6]]
    assert names[0] == "crammed_bert_256" and "fff_bert_1x7" in names
    equal = study.runs[names.index("crammed_bert_equal_time")]
    assert equal.model.mlp_dim == 33
    for run in study.runs:
        run.check()


def test_trees_keep_their_name():
    experiment = with_trees(resolve("crammed_bert", "demo"), "8x8")
    assert experiment.name == "fff_bert_8x8"
    assert (experiment.fff.trees, experiment.fff.depth) == (8, 8)


def test_equal_time_is_measured_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("KPD_CACHE", str(tmp_path))
    measured = {"width": 47, "kernel": "cpp", "seconds": {}}
    equal_time.store(FFFConfig(depth=4), 16, 64, measured)
    # Stored for these sizes only; starting another process would fail.
    monkeypatch.setattr("sys.executable", "/nowhere")
    assert equal_time.equal_time_width(FFFConfig(depth=4), 16, 64) == 47
    with pytest.raises(FileNotFoundError):
        equal_time.equal_time_width(FFFConfig(depth=5), 16, 64)


@pytest.mark.slow
def test_equal_time_by_measurement(tmp_path, monkeypatch):
    monkeypatch.setenv("KPD_CACHE", str(tmp_path))
    # 16 trees of 5 levels: as many neurons as a dense layer of 80, but not in one product.
    width = equal_time.equal_time_width(FFFConfig(trees=16, depth=4), 256, 512)
    assert 16 < width < 2048
