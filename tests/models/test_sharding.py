"""Which axes of parameters, moments and masks the rules put on which axes of the mesh."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import optax
import pytest
from jax.sharding import PartitionSpec as P

from models import presets
from models.api import build
from models.config import MeshConfig, T5Config
from models.errors import UserError
from models.mesh import make_mesh
from models.sharding import shard_like, shard_params
from sparsity.config import PruningConfig
from sparsity.prune import prune


@pytest.fixture(scope="module")
def mesh():
    return make_mesh(MeshConfig(data=2, fsdp=2, tensor=2))


def named(tree):
    leaves = jax.tree.leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def sharded(cfg, mesh):
    return shard_params(jax.eval_shape(build(cfg).init, jax.random.key(0)), mesh)


def specs(tree):
    """Path → PartitionSpec without the Nones at its end."""
    found = {}
    for name, leaf in named(tree).items():
        axes = list(leaf.sharding.spec)
        while axes and axes[-1] is None:
            axes.pop()
        found[name] = tuple(axes)
    return found


def test_every_parameter_of_t5(mesh):
    attention = {
        "query": (None, "fsdp", "tensor"),
        "key": (None, "fsdp", "tensor"),
        "value": (None, "fsdp", "tensor"),
        "out": (None, "tensor", "fsdp"),
    }
    mlp = {
        "wi_gate": (None, "fsdp", "tensor"),
        "wi_up": (None, "fsdp", "tensor"),
        "wo": (None, "tensor", "fsdp"),
    }
    expected = {"token_embedding": ("tensor", "fsdp"), "logits": ("fsdp", "tensor")}
    for side, blocks in (
        ("encoder", ("attention",)),
        ("decoder", ("attention", "cross_attention")),
    ):
        expected[f"{side}/relative_bias"] = (None, "tensor")
        expected[f"{side}/final_norm"] = ()
        layers = f"{side}/layers"
        expected |= {f"{layers}/mlp/{name}": spec for name, spec in mlp.items()}
        expected |= {f"{layers}/{block}/{k}": v for block in blocks for k, v in attention.items()}
        expected |= {f"{layers}/{block}_norm": () for block in (*blocks, "mlp")}
    assert specs(sharded(T5Config(), mesh)) == expected


def test_biases_lie_like_the_columns_that_they_are_added_to(mesh):
    found = specs(sharded(presets.BERT_BASE, mesh)) | specs(sharded(presets.VIT_B16, mesh))
    split = {name for name, spec in found.items() if name.endswith("bias") and spec}
    layers = "encoder/layers"
    assert split == {
        *(f"{layers}/attention/{name}_bias" for name in ("query", "key", "value")),
        f"{layers}/mlp/wi_bias",
        "logits_bias",
        "classifier_bias",
    }
    assert found[f"{layers}/mlp/wi_bias"] == (None, "tensor")
    assert found["logits_bias"] == ("tensor",)


@pytest.mark.parametrize(
    "cfg",
    [
        T5Config(),
        replace(T5Config(), gated=False, tied_logits=True, activation="relu"),
        presets.BERT_BASE,
        presets.CRAMMED_BERT,
        presets.CRAMMED_BERT_UNGATED,
        presets.VIT_B16,
        replace(presets.VIT_S16, pooling="mean"),
    ],
)
def test_nearly_all_weights_are_split_both_ways(cfg, mesh):
    params = named(sharded(cfg, mesh))
    total = sum(leaf.size for leaf in params.values())
    quarters = [leaf for leaf in params.values() if set(leaf.sharding.spec) >= {"fsdp", "tensor"}]
    assert sum(leaf.size for leaf in quarters) > 0.95 * total


def test_uncovered_parameter_is_named(mesh):
    params = {"encoder": {"layers": {"mlp": {"router": jnp.zeros((2, 4, 8))}}}}
    with pytest.raises(UserError, match=r"encoder/layers/mlp/router \(2, 4, 8\): no sharding rule"):
        shard_params(params, mesh)


def test_first_rule_wins_and_the_layer_axis_is_whole(mesh):
    rules = [(r".*/wi", P("tensor")), (r".*", P("fsdp", "tensor"))]
    params = {"layers": {"wi": jnp.zeros((2, 4, 8))}, "wi": jnp.zeros((4, 8))}
    assert specs(shard_params(params, mesh, rules)) == {
        "layers/wi": (None, "tensor"),
        "wi": ("fsdp", "tensor"),
    }


def test_rule_with_more_axes_than_the_parameter_is_refused(mesh):
    with pytest.raises(UserError, match=r"scale \(8,\): its sharding rule has 2 axes"):
        shard_params({"scale": jnp.zeros(8)}, mesh, [(r".*", P(None, "tensor"))])


def test_odd_vocabulary_stays_whole_and_the_rest_is_split():
    mesh = make_mesh(MeshConfig(tensor=8))
    found = specs(sharded(replace(T5Config(), vocab_size=4196), mesh))
    assert found["token_embedding"] == (None, "fsdp") and found["logits"] == ("fsdp",)
    # Twelve heads of 64: eight divides the columns, though not the heads.
    assert found["encoder/relative_bias"] == ()
    assert found["encoder/layers/attention/query"] == (None, "fsdp", "tensor")


def test_moments_and_masks_lie_like_their_parameters(mesh):
    cfg = T5Config(num_encoder_layers=2, num_decoder_layers=2)
    params = sharded(cfg, mesh)
    tx = prune(optax.adamw(1e-3), PruningConfig(rule="magnitude", sparsity=0.5))
    state = shard_like(params, jax.eval_shape(tx.init, params), mesh)
    wanted = {name: (leaf.shape, leaf.sharding) for name, leaf in named(params).items()}

    adam = state.inner[0]
    for moments in (adam.mu, adam.nu):
        assert {k: (v.shape, v.sharding) for k, v in named(moments).items()} == wanted
    assert len(state.masks) == 20
    for name, mask in state.masks.items():
        assert mask.dtype == bool and (mask.shape, mask.sharding) == wanted[name]
    assert adam.count.sharding.is_fully_replicated and state.step.sharding.is_fully_replicated


def test_row_and_column_means_are_whole(mesh):
    params = sharded(T5Config(num_encoder_layers=2, num_decoder_layers=2), mesh)
    state = jax.eval_shape(optax.scale_by_factored_rms().init, params)
    found = named(shard_like(params, state, mesh))
    for name in ("v_row", "v_col"):
        means = found[f"{name}/encoder/layers/mlp/wo"]
        assert means.ndim == 2 and means.sharding.is_fully_replicated
