"""`python -m models.benchmark`: training steps of ours and of transformers, in turn, measured here.

One step is forward, backward and AdamW, in float32. Needs the extra `parity` (torch, transformers).
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from rich.console import Console
from rich.table import Table

from models.allocator import keep_freed_memory
from models.api import build
from models.config import BertConfig, T5Config
from models.presets import BERT_BASE, VIT_S16

_RATE, _BETAS, _EPSILON, _DECAY = 1e-4, (0.9, 0.98), 1e-8, 0.01
_MASKED_SHARE = 0.15

Step = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """One model at one batch, and what it is compared with."""

    config: Any
    batch: dict[str, np.ndarray]
    # Name of a reference → a function that makes its step.
    references: dict[str, Callable[[dict[str, np.ndarray]], Step]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", default=["bert", "t5", "vit"], help="bert, t5, vit")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds")
    parser.add_argument("--layers", type=int, default=12, help="layers (of each stack)")
    parser.add_argument("--scan", action="store_true", help="scan over layers")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures")
    arguments = parser.parse_args()
    # Both sides run in this process, with the same allocator.
    keep_freed_memory()
    rows: list[dict[str, Any]] = []
    for name in arguments.models:
        rows += measure(name, arguments.layers, arguments.scan, arguments.rounds)
        _print(rows)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n")


def measure(name: str, layers: int, scan: bool, rounds: int) -> list[dict[str, Any]]:
    """Runs our step, the references' and a matrix product in turn; one row for each reference."""
    case = CASES[name](layers)
    cfg = dataclasses.replace(case.config, scan_layers=scan)
    ours, memory = our_step(cfg, case.batch)
    flops = 3 * sum(
        build(cfg).forward_flops({key: x.shape for key, x in case.batch.items()}).values()
    )
    steps: dict[str, Step] = {"ours": ours, "product": _product()}
    steps |= {key: make(case.batch) for key, make in case.references.items()}
    seconds = interleave(steps, rounds)
    product_rate = 2 * 2048**3 / statistics.median(seconds["product"])
    rate = flops / statistics.median(seconds["ours"])
    common = {
        "model": name,
        "layers": layers,
        "ours_s": statistics.median(seconds["ours"]),
        "gflops": rate / 1e9,
        "product_gflops": product_rate / 1e9,
        "share_of_product": rate / product_rate,
        **memory,
    }
    return [
        common
        | {
            "reference": reference,
            "reference_s": statistics.median(seconds[reference]),
            "ratio": statistics.median(
                a / b for a, b in zip(seconds["ours"], seconds[reference], strict=True)
            ),
        }
        for reference in case.references
    ]


def interleave(steps: dict[str, Step], rounds: int) -> dict[str, list[float]]:
    """Seconds of each step, one of each a round, after a warm-up of two."""
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for index in range(rounds + 2):
        for name, step in steps.items():
            begun = time.perf_counter()
            step()
            if index >= 2:
                seconds[name].append(time.perf_counter() - begun)
    return seconds


def our_step(cfg: Any, batch: dict[str, np.ndarray]) -> tuple[Step, dict[str, Any]]:
    """Returns a function that makes one training step of ours, and what compiling it told."""
    model = build(cfg)
    tx = optax.adamw(_RATE, *_BETAS, eps=_EPSILON, weight_decay=_DECAY)

    def loss(params: Any, batch: Any) -> jax.Array:
        total, count = model.losses(params, batch)["loss"]
        return total / count

    def train_step(state: Any, batch: Any) -> tuple[Any, jax.Array]:
        params, opt = state
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, opt = tx.update(grads, opt, params)
        return (optax.apply_updates(params, updates), opt), value

    @jax.jit
    def init(key: jax.Array) -> Any:
        params = model.init(key)
        return params, tx.init(params)

    state = init(jax.random.key(0))
    begun = time.perf_counter()
    compiled = jax.jit(train_step, donate_argnums=0).lower(state, batch).compile()
    compile_s = time.perf_counter() - begun
    analysis = compiled.memory_analysis()
    if analysis is None:
        raise SystemExit("this backend does not say how much memory a program takes")
    weights = _bytes(state[0])
    residuals = jax.eval_shape(
        lambda params: jax.vjp(lambda p: loss(p, batch), params)[1], state[0]
    )
    held = {"state": state}

    def step() -> None:
        held["state"], value = compiled(held["state"], batch)
        jax.block_until_ready((held["state"], value))

    return step, {
        "compile_s": compile_s,
        "state_bytes": _bytes(state),
        "gradients_bytes": weights,
        # What the backward pass needs of the forward pass, the weights themselves not counted.
        "saved_bytes": _bytes(residuals) - weights,
        "peak_bytes": analysis.argument_size_in_bytes + analysis.temp_size_in_bytes,
    }


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _product() -> Step:
    a = jnp.asarray(np.random.default_rng(0).normal(size=(2048, 2048)).astype(np.float32))
    multiply = jax.jit(jnp.matmul)
    return lambda: jax.block_until_ready(multiply(a, a))


def _torch_step(model: Any, loss: Callable[[Any], Any]) -> Step:
    import torch

    torch.set_num_threads(os.cpu_count() or 1)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=_RATE, betas=_BETAS, eps=_EPSILON, weight_decay=_DECAY, fused=True
    )
    model.train()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model).backward()
        optimizer.step()

    return step


def _bert(layers: int) -> Case:
    cfg = dataclasses.replace(BERT_BASE, num_layers=layers, pooler=False)
    generator = np.random.default_rng(0)
    tokens = generator.integers(5, cfg.vocab_size, (8, 128), dtype=np.int32)
    masked = round(_MASKED_SHARE * 128)
    positions = np.stack([np.sort(generator.permutation(128)[:masked]) for _ in range(8)])
    batch = {
        "tokens": tokens,
        "masked_positions": positions.astype(np.int32),
        "masked_labels": np.take_along_axis(tokens, positions, axis=1),
        "masked_weights": np.ones((8, masked), np.float32),
    }
    return Case(
        cfg,
        batch,
        {
            "as it comes": lambda batch: _hugging_face_bert(cfg, batch, sparse_head=False),
            "head on masked positions": lambda batch: _hugging_face_bert(
                cfg, batch, sparse_head=True
            ),
        },
    )


def _hugging_face_bert(cfg: BertConfig, batch: dict[str, np.ndarray], sparse_head: bool) -> Step:
    import torch
    import transformers

    config = transformers.BertConfig(
        num_hidden_layers=cfg.num_layers, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    tokens = torch.tensor(batch["tokens"]).long()
    positions = torch.tensor(batch["masked_positions"]).long()
    labels = torch.tensor(batch["masked_labels"]).long()
    everywhere = torch.full_like(tokens, -100).scatter(1, positions, labels)

    def loss(model: Any) -> Any:
        if not sparse_head:
            return model(input_ids=tokens, labels=everywhere).loss
        hidden = model.bert(input_ids=tokens).last_hidden_state
        index = positions[:, :, None].expand(-1, -1, hidden.shape[-1])
        logits = model.cls(torch.gather(hidden, 1, index))
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())

    return _torch_step(transformers.BertForMaskedLM(config), loss)


def _t5(layers: int) -> Case:
    cfg = T5Config(num_encoder_layers=layers, num_decoder_layers=layers)
    generator = np.random.default_rng(0)
    batch = {
        "inputs": generator.integers(2, cfg.vocab_size, (8, 512), dtype=np.int32),
        "targets": generator.integers(2, cfg.vocab_size, (8, 114), dtype=np.int32),
    }

    def reference(batch: dict[str, np.ndarray]) -> Step:
        import torch
        import transformers

        config = transformers.T5Config(
            vocab_size=cfg.vocab_size,
            d_model=cfg.model_dim,
            d_kv=cfg.head_dim,
            d_ff=cfg.mlp_dim,
            num_layers=layers,
            num_decoder_layers=layers,
            num_heads=cfg.num_heads,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        )
        inputs = torch.tensor(batch["inputs"]).long()
        targets = torch.tensor(batch["targets"]).long()
        return _torch_step(
            transformers.T5ForConditionalGeneration(config),
            lambda model: model(input_ids=inputs, labels=targets).loss,
        )

    return Case(cfg, batch, {"as it comes": reference})


def _vit(layers: int) -> Case:
    cfg = dataclasses.replace(VIT_S16, num_layers=layers)
    generator = np.random.default_rng(0)
    batch = {
        "images": generator.normal(size=(16, 224, 224, 3)).astype(np.float32),
        "labels": generator.integers(0, 1000, 16, dtype=np.int32),
    }

    def reference(batch: dict[str, np.ndarray]) -> Step:
        import torch
        import transformers

        config = transformers.ViTConfig(
            hidden_size=cfg.model_dim,
            intermediate_size=cfg.mlp_dim,
            num_attention_heads=cfg.num_heads,
            num_hidden_layers=layers,
            num_labels=1000,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        images = torch.tensor(batch["images"]).permute(0, 3, 1, 2).contiguous()
        labels = torch.tensor(batch["labels"]).long()
        return _torch_step(
            transformers.ViTForImageClassification(config),
            lambda model: model(pixel_values=images, labels=labels).loss,
        )

    return Case(cfg, batch, {"as it comes": reference})


CASES: dict[str, Callable[[int], Case]] = {"bert": _bert, "t5": _t5, "vit": _vit}


def _print(rows: list[dict[str, Any]]) -> None:
    table = Table(title=f"float32, {os.cpu_count()} threads, medians of interleaved rounds")
    for column in ("model", "against", "ours", "theirs", "ours / theirs", "of the product"):
        table.add_column(column, justify="left" if column in ("model", "against") else "right")
    for row in rows:
        table.add_row(
            row["model"],
            row["reference"],
            f"{row['ours_s']:.2f} s",
            f"{row['reference_s']:.2f} s",
            f"{row['ratio']:.2f}",
            f"{row['gflops']:.0f} of {row['product_gflops']:.0f} GFLOP/s, "
            f"{row['share_of_product']:.2f}",
        )
    console = Console(width=110)
    console.print(table)
    last = rows[-1]
    needed = last["state_bytes"] + last["gradients_bytes"] + last["saved_bytes"]
    console.print(
        f"{last['model']}, {last['layers']} layers: compiled in {last['compile_s']:.1f} s; needs "
        f"{last['peak_bytes'] / 1e9:.2f} GB, {last['peak_bytes'] / needed:.2f} of its parameters "
        f"and optimiser state {last['state_bytes'] / 1e9:.2f}, gradients "
        f"{last['gradients_bytes'] / 1e9:.2f} and saved activations {last['saved_bytes'] / 1e9:.2f}"
    )


if __name__ == "__main__":
    main()
