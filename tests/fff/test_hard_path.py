"""Every kernel gives the outputs, the routing and the gradients of an explicit loop."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fff import cpp, pallas, pallas_gpu, pallas_tpu, xla
from fff.config import FFFConfig
from fff.kernels import choose_kernel, choose_training, hard_path
from fff.tables import Tables
from models.errors import UserError
from tests.fff import oracle
from tests.fff.cases import KERNELS, SHAPES, needs_compiler, tokens, weights


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_outputs(shape, kernel):
    cfg, count, width = SHAPES[shape]
    x, tables = tokens(count, width), weights(cfg, width)
    wanted, _, _ = oracle.hard(cfg, x, *tables)
    found = jax.jit(partial(hard_path, cfg, kernel=kernel))(x, tables)
    np.testing.assert_allclose(found, wanted, atol=2e-6)


@pytest.mark.parametrize("shape", SHAPES)
def test_routing(shape):
    cfg, count, width = SHAPES[shape]
    x, tables = tokens(count, width), weights(cfg, width)
    _, nodes, logits = oracle.hard(cfg, x, *tables)
    path = xla.walk(cfg, x, tables)
    np.testing.assert_array_equal(path.node_TKL, nodes)
    np.testing.assert_allclose(path.logit_TKL, logits, atol=2e-6)
    mask = xla.path_mask(cfg, x @ tables.in_ND.T + tables.bias_N[None])
    for t in range(count):
        assert set(np.flatnonzero(mask[t])) == set(nodes[t].ravel())


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES)
def test_routing_of_the_cpp_kernel(shape):
    cfg, count, width = SHAPES[shape]
    x, tables = tokens(count, width), weights(cfg, width)
    _, nodes, logits = oracle.hard(cfg, x, *tables)
    _, path = cpp.forward_with_path(cfg, x, tables)
    np.testing.assert_array_equal(path.node_TKL, nodes)
    np.testing.assert_allclose(path.logit_TKL, logits, atol=2e-6)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", ["deep", "odd width", "many trees"])
def test_gradients(shape, kernel):
    cfg, count, width = SHAPES[shape]
    x, tables, grad = tokens(count, width), weights(cfg, width), tokens(count, width, seed=3)
    wanted = oracle.hard_gradients(cfg, x, *tables, grad)

    def loss(x, tables):
        return jnp.sum(grad * hard_path(cfg, x, tables, kernel))

    found = jax.jit(jax.grad(loss, argnums=(0, 1)))(x, tables)
    for ours, theirs in zip(jax.tree.leaves(found), wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5)


@needs_compiler
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("schedule", ["tokens", "subtrees"])
def test_schedules_of_the_cpp_kernel(schedule, dtype):
    # Of two trees, each with more rows than the second-level cache of any core holds.
    cfg, width, count = FFFConfig(trees=2, depth=9), 1536, 67
    x, tables = tokens(count, width), weights(cfg, width, dtype)
    wanted, _, _ = oracle.hard(cfg, x, *tables)
    found = cpp.forward(cfg, x, tables, schedule)
    np.testing.assert_allclose(found, wanted, atol=3e-6)


@pytest.mark.parametrize("kernel", KERNELS)
def test_bfloat16_weights_with_float32_tokens(kernel):
    cfg, count, width = SHAPES["odd width"]
    x, tables = tokens(count, width), weights(cfg, width, "bfloat16")
    wanted, _, _ = oracle.hard(cfg, x, *tables)
    np.testing.assert_allclose(hard_path(cfg, x, tables, kernel), wanted, atol=2e-6)


@pytest.mark.parametrize("kernel", ["xla", pytest.param("cpp", marks=needs_compiler)])
def test_bfloat16_gradients_have_the_dtype_of_what_they_are_of(kernel):
    cfg, count, width = SHAPES["deep"]
    x, tables = tokens(count, width).astype(jnp.bfloat16), weights(cfg, width, "bfloat16")
    wanted = oracle.hard_gradients(cfg, x, *tables, np.ones((count, width)))

    def loss(x, tables):
        return jnp.sum(hard_path(cfg, x, tables, kernel).astype(jnp.float32))

    found = jax.grad(loss, argnums=(0, 1))(x, tables)
    for ours, theirs, of in zip(jax.tree.leaves(found), wanted, [x, *tables], strict=True):
        assert ours.dtype == of.dtype
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours.astype(jnp.float32), theirs, atol=6e-3 * scale)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("ties", ["left", "right"])
def test_ties(kernel, ties):
    # Weights in are 0, so that every logit is 0 and a token visits the first or the last nodes.
    cfg, width = FFFConfig(depth=2, ties=ties), 4
    tables = weights(cfg, width)._replace(in_ND=jnp.zeros((7, width)), bias_N=jnp.zeros(7))
    # The gradient of row n is Φ'(0) <g, out_n> x: not 0 on the path.
    grads = jax.grad(lambda t: jnp.sum(hard_path(cfg, jnp.ones((1, width)), t, kernel)))(tables)
    visited = np.flatnonzero(np.abs(grads.bias_N) > 1e-6)
    assert list(visited) == ([0, 1, 3] if ties == "left" else [0, 2, 6])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("ties", ["left", "right"])
def test_a_token_with_a_nan_gives_nan_and_leaves_others_alone(kernel, ties):
    cfg, width = FFFConfig(depth=3, ties=ties), 16
    x, tables = tokens(6, width), weights(cfg, width)
    whole = hard_path(cfg, x, tables, kernel)
    broken = hard_path(cfg, x.at[2, 3].set(jnp.nan), tables, kernel)
    assert np.isnan(broken[2]).all()
    others = np.array([0, 1, 3, 4, 5])
    np.testing.assert_array_equal(broken[others], whole[others])


@needs_compiler
def test_a_token_with_a_nan_goes_left():
    cfg = FFFConfig(depth=3, ties="right")
    x = jnp.full((1, 16), jnp.nan)
    for path in (
        xla.walk(cfg, x, weights(cfg, 16)),
        cpp.forward_with_path(cfg, x, weights(cfg, 16))[1],
    ):
        np.testing.assert_array_equal(path.node_TKL[0, 0], [0, 1, 3, 7])


@pytest.mark.parametrize("device", ["tpu", "gpu"])
def test_pallas_kernels(device, monkeypatch):
    cfg, count, width = FFFConfig(trees=2, depth=4), 19, 200
    x, tables = tokens(count, width), weights(cfg, width)
    wanted, _, _ = oracle.hard(cfg, x, *tables)
    # Room for two levels only: the rows of the others are fetched one by one.
    monkeypatch.setattr(pallas_tpu, "_UPPER_BYTES", 20_000)
    assert pallas_tpu.upper_levels(cfg, 1024) == 2
    np.testing.assert_allclose(pallas.forward(cfg, x, tables, device), wanted, atol=2e-6)


def test_pallas_kernel_is_lowered_for_a_gpu():
    cfg, args = FFFConfig(depth=11), abstract_tables(768)
    lowered = (
        jax.jit(partial(pallas_gpu.forward, cfg)).trace(*args).lower(lowering_platforms=("cuda",))
    )
    assert "triton" in lowered.as_text()


def abstract_tables(width, dtype="float32"):
    def array(shape, dtype="float32"):
        return jax.ShapeDtypeStruct(shape, dtype)

    tables = Tables(array((4095, width), dtype), array((4095,)), array((4095, width), dtype))
    return array((1024, width)), tables


@needs_compiler
def test_cpp_kernel_in_scan_and_vmap():
    cfg, width = FFFConfig(depth=3), 16
    x = tokens(12, width)
    layers = jax.tree.map(lambda *t: jnp.stack(t), *(weights(cfg, width, seed=s) for s in range(3)))

    def through(kernel):
        step = lambda x, tables: (x + hard_path(cfg, x, tables, kernel), None)  # noqa: E731
        return jax.jit(lambda x: jax.lax.scan(step, x, layers)[0])(x)

    np.testing.assert_allclose(through("cpp"), through("xla"), atol=1e-5)
    one = jax.vmap(lambda tables: hard_path(cfg, x, tables, "cpp"))(layers)
    np.testing.assert_allclose(
        one[1], hard_path(cfg, x, weights(cfg, width, seed=1), "xla"), atol=1e-6
    )


def test_no_tokens():
    cfg = FFFConfig(depth=2)
    for kernel in ("xla", "dense", choose_kernel(cfg)):
        assert hard_path(cfg, jnp.zeros((0, 8)), weights(cfg, 8), kernel).shape == (0, 8)


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        (weights(FFFConfig(depth=2), 8), r"1x3 has 1 x \(2\^4 - 1\) = 15 rows"),
        (weights(FFFConfig(depth=3), 4), r"must be \(15, 8\)"),
        (
            weights(FFFConfig(depth=3), 8)._replace(out_ND=jnp.zeros((15, 8), jnp.bfloat16)),
            "one dtype",
        ),
    ],
)
def test_tables_that_do_not_fit(tables, text):
    with pytest.raises(UserError, match=text):
        hard_path(FFFConfig(depth=3), jnp.zeros((2, 8)), tables, "xla")


def test_unknown_kernel():
    with pytest.raises(UserError, match="Did you mean dense"):
        hard_path(FFFConfig(depth=2), jnp.zeros((2, 8)), weights(FFFConfig(depth=2), 8), "dens")


def test_choice_of_kernels():
    few, all_of_them = FFFConfig(), FFFConfig(trees=3072, depth=0)
    assert choose_kernel(all_of_them) == choose_training(all_of_them) == "dense"
    assert choose_kernel(few, "gpu") == choose_training(few, "gpu") == "xla"
    assert choose_training(FFFConfig(training="dense")) == "dense"
    assert choose_training(FFFConfig(trees=3072, depth=0, training="gather")) != "dense"
    with pytest.raises(UserError, match="this device is a gpu"):
        choose_kernel(FFFConfig(kernel="cpp"), "gpu")
