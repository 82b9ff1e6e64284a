"""Sharded training steps equal the step of one device, and send what they should."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from models.api import build
from models.config import MeshConfig
from models.mesh import batch_sharding, make_mesh, on_mesh
from models.sharding import shard_params
from tests.models.sharding_cases import (
    EXPERIMENTS,
    SINGLE,
    batch,
    collectives,
    matrices,
    program,
    two_steps,
)

MESHES = {
    "data 8": MeshConfig(data=8),
    "tensor 8": MeshConfig(tensor=8),
    "fsdp 8": MeshConfig(fsdp=8),
    "data 2 tensor 4": MeshConfig(data=2, tensor=4),
    "data 2 fsdp 2 tensor 2": MeshConfig(data=2, fsdp=2, tensor=2),
    "replica 2 data 2 fsdp 2": MeshConfig(replica=2, data=2, fsdp=2),
}


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    yield
    program.cache_clear()


def check(name, mesh):
    check_equals_one_device(name, mesh)
    check_collectives(name, mesh)


def check_equals_one_device(name, mesh):
    (state, sums), (wanted, wanted_sums) = two_steps(name, mesh), two_steps(name, SINGLE)
    for metric, (total, count) in wanted_sums.items():
        assert float(sums[metric][0]) == pytest.approx(float(total), rel=1e-5), metric
        assert float(sums[metric][1]) == pytest.approx(float(count), rel=1e-6), metric

    def near(path, ours, theirs):
        if not jax.dtypes.issubdtype(ours.dtype, jax.dtypes.prng_key):
            ours, theirs = np.asarray(ours, np.float32), np.asarray(theirs, np.float32)
            where = jax.tree_util.keystr(path)
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5, err_msg=where)

    jax.tree.map_with_path(near, state, wanted)
    # The state comes back where it was, or it could not be donated.
    likes = jax.tree.leaves(program(name, mesh).state_shapes)
    for leaf, like in zip(jax.tree.leaves(state), likes, strict=True):
        assert leaf.sharding.is_equivalent_to(like.sharding, leaf.ndim)


def check_collectives(name, mesh):
    sent, shapes = collectives(program(name, mesh).train_step), matrices(name, mesh)
    sizes = mesh.sizes(8)
    # Matrices are gathered along fsdp where they are used. Nothing else is ever gathered or moved:
    # no matrix along tensor, no activation.
    assert sent["all-gather"] == {m.used for m in shapes.values() if m.used != m.kept}
    assert not sent["all-to-all"] and not sent["collective-permute"]
    if sizes["tensor"] > 1:
        assert not sent["all-gather"] & {matrix.whole for matrix in shapes.values()}
        experiment = EXPERIMENTS[name]
        examples = 16 // experiment.train.microbatches * sizes["tensor"] // 8
        # Each block's output, (B, T, D), is summed over the parts that its rows were in.
        summed = {(s[0], s[-1]) for s in sent["all-reduce"] if len(s) == 3}
        assert (examples, experiment.model.model_dim) in summed
    if sizes["tensor"] < 8:
        # Gradients are summed over the parts of the batch. Where the backend has no pass that makes
        # one reduce-scatter of it, as on CPUs, an all-reduce is followed by a slice.
        summed = {frozenset(shape) for shape in sent["all-reduce"] | sent["reduce-scatter"]}
        for path, matrix in shapes.items():
            if path.endswith("relative_bias"):
                continue  # what is summed is the gradient of each distance, before it is bucketed
            assert {frozenset(matrix.used), frozenset(matrix.kept)} & summed, path


@pytest.mark.parametrize(
    ("name", "mesh"),
    [
        ("t5 pruned", "data 2 fsdp 2 tensor 2"),
        ("bert", "tensor 8"),
        ("vit", "fsdp 8"),
    ],
)
def test_two_steps(name, mesh):
    check(name, MESHES[mesh])


@pytest.mark.slow
@pytest.mark.parametrize("mesh", MESHES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_two_steps_of_every_model_on_every_mesh(name, mesh):
    check(name, MESHES[mesh])


def test_one_device_runs_the_program_that_it_would_run_without_a_mesh():
    compiled = program("vit", SINGLE)
    assert not any(collectives(compiled.train_step).values())
    assert "custom-call" not in compiled.train_step.as_text()


@pytest.mark.parametrize("mesh", [SINGLE, MESHES["fsdp 8"]])
def test_step_reuses_the_memory_of_the_state(mesh):
    compiled = program("vit", mesh)
    given = compiled.init_state(0)
    compiled.train_step(given, batch("vit"), np.float32(0), np.float32(0.5))
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves((given["params"], given["opt"])))


def test_validation_is_shared_by_the_devices():
    compiled, examples = program("vit", MESHES["fsdp 8"]), batch("vit")
    sums = compiled.eval_step(compiled.init_state(0), examples)
    alone = program("vit", SINGLE)
    wanted = alone.eval_step(alone.init_state(0), examples)
    assert float(sums["nll"][0]) == pytest.approx(float(wanted["nll"][0]), rel=1e-6)
    ran = compiled.eval_step.lower(compiled.state_shapes, examples).compile()
    for sharding in ran.input_shardings[0][1].values():
        assert sharding.is_equivalent_to(batch_sharding(make_mesh(MESHES["fsdp 8"])), 1)
    tokens, width = 17, 32
    assert f"f32[2,{tokens},{width}]" in ran.as_text()
    assert f"f32[16,{tokens},{width}]" not in ran.as_text()


def test_odd_vocabulary_is_whole_but_its_logits_are_split():
    model = build(replace(EXPERIMENTS["bert"].model, vocab_size=89))
    mesh, examples = make_mesh(MeshConfig(tensor=8)), batch("bert")
    params = shard_params(jax.eval_shape(model.init, jax.random.key(0)), mesh)
    assert params["token_embedding"].sharding.is_fully_replicated

    def loss(params, batch):
        return model.losses(params, batch)["loss"][0]

    shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
    split = jax.jit(on_mesh(loss, mesh), in_shardings=(shardings, batch_sharding(mesh)))
    split = split.lower(params, examples).compile()
    # ceil(89 / 8) = 12 columns for each device.
    assert "f32[16,4,12]" in split.as_text() and "f32[16,4,89]" not in split.as_text()
    values = jax.jit(model.init)(jax.random.key(0))
    wanted = jax.jit(loss)(values, examples)
    assert float(split(values, examples)) == pytest.approx(float(wanted), rel=1e-6)
