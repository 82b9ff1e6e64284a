"""Greedy and beam search for a likely sequence, over any model that scores the next token."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

# Shape suffixes: B batch, N beams of each example, C candidates for them, T tokens of a sequence,
# V vocabulary. Sequences being built have a start token in front, hence T + 1.

START = 0
PAD = 0
EOS = 1

# (cache, tokens_BN, position) -> logits (B, N, V) of what follows the token at this position, which
# starts at 0 for the start token, and the cache with it. Leaves of the cache are (L, B, N, ...).
Step = Callable[[Any, jax.Array, jax.Array], tuple[jax.Array, Any]]


class _Greedy(NamedTuple):
    position: jax.Array
    cache: Any
    tokens_BT: jax.Array
    finished_B: jax.Array


def greedy_search(step: Step, cache: Any, *, batch_size: int, max_length: int) -> jax.Array:
    """Takes the most likely token at every position; returns int32 (B, max_length).

    A sequence ends with its first EOS or at `max_length` tokens; PAD fills the rest. No step
    is taken once all have ended. The cache is for one beam.
    """

    def is_unfinished(state: _Greedy) -> jax.Array:
        return (state.position < max_length) & ~jnp.all(state.finished_B)

    def advance(state: _Greedy) -> _Greedy:
        position, cache, tokens_BT, finished_B = state
        last_B1 = jax.lax.dynamic_slice_in_dim(tokens_BT, position, 1, axis=1)
        logits_B1V, cache = step(cache, last_B1, position)
        next_B = jnp.argmax(logits_B1V[:, 0], axis=-1).astype(jnp.int32)
        next_B = jnp.where(finished_B, PAD, next_B)
        tokens_BT = tokens_BT.at[:, position + 1].set(next_B)
        return _Greedy(position + 1, cache, tokens_BT, finished_B | (next_B == EOS))

    start = _Greedy(
        position=jnp.int32(0),
        cache=cache,
        tokens_BT=_empty(batch_size, max_length),
        finished_B=jnp.zeros(batch_size, bool),
    )
    return jax.lax.while_loop(is_unfinished, advance, start).tokens_BT[:, 1:]


class _Beams(NamedTuple):
    position: jax.Array
    cache: Any
    # sequences that go on, most likely first, and their summed log-probabilities
    tokens_BNT: jax.Array
    scores_BN: jax.Array
    # the best sequences that have ended, best first, and their scores; -inf where there is none
    ended_tokens_BNT: jax.Array
    ended_scores_BN: jax.Array
    # whether what goes on may yet beat what has ended
    open_B: jax.Array


def beam_search(
    step: Step,
    cache: Any,
    *,
    batch_size: int,
    max_length: int,
    num_beams: int,
    length_penalty: float,
) -> jax.Array:
    """Follows the `num_beams` most likely beginnings; returns the best sequence, int32 (B, T).

    The score of a sequence of n tokens, its EOS counted, is sum(log p) / n**length_penalty, so
    that a greater penalty favours longer ones; it ends with EOS or at T = `max_length` tokens,
    and PAD fills the rest. Of the 2 num_beams most likely continuations, those among the first
    num_beams that end are kept if they are among the best num_beams ended so far, and the first
    num_beams that do not end go on. An example is done once it has num_beams ended sequences, all
    of which score at least what the most likely beginning would if it ended now: exact for a
    penalty of 0, for a positive one a heuristic, because the mean log-probability may yet rise.
    No step is taken once all examples are done. This is the beam search of Hugging Face
    transformers with its default, early_stopping=False. One beam with penalty 0 is greedy search.
    """

    def is_unfinished(state: _Beams) -> jax.Array:
        return (state.position < max_length) & jnp.any(state.open_B)

    def advance(state: _Beams) -> _Beams:
        last_BN = jax.lax.dynamic_index_in_dim(
            state.tokens_BNT, state.position, axis=2, keepdims=False
        )
        logits_BNV, cache = step(state.cache, last_BN, state.position)
        length = state.position + 1
        norm = length.astype(jnp.float32) ** length_penalty

        totals_BNV = jax.nn.log_softmax(logits_BNV) + state.scores_BN[..., None]
        totals_BC, choices_BC = jax.lax.top_k(totals_BNV.reshape(batch_size, -1), 2 * num_beams)
        beams_BC, ids_BC = jnp.divmod(choices_BC, logits_BNV.shape[2])
        tokens_BCT = _choose(state.tokens_BNT, beams_BC).at[:, :, length].set(ids_BC)
        ends_BC = (ids_BC == EOS) | (length == max_length)

        scores_BN, chosen_BN = jax.lax.top_k(jnp.where(ends_BC, -jnp.inf, totals_BC), num_beams)
        parents_BN = _choose(beams_BC, chosen_BN)
        choose_layers = jax.vmap(_choose, (0, None))
        cache = jax.tree.map(lambda leaf: choose_layers(leaf, parents_BN), cache)

        may_end_1C = (jnp.arange(2 * num_beams) < num_beams)[None]
        counts_BC = ends_BC & may_end_1C & state.open_B[:, None]
        new_scores_BC = jnp.where(counts_BC, totals_BC / norm, -jnp.inf)
        ended_scores_BN, kept_BN = jax.lax.top_k(
            jnp.concatenate([state.ended_scores_BN, new_scores_BC], axis=1), num_beams
        )
        ended_tokens = jnp.concatenate([state.ended_tokens_BNT, tokens_BCT], axis=1)
        return _Beams(
            position=length,
            cache=cache,
            tokens_BNT=_choose(tokens_BCT, chosen_BN),
            scores_BN=scores_BN,
            ended_tokens_BNT=_choose(ended_tokens, kept_BN),
            ended_scores_BN=ended_scores_BN,
            open_B=state.open_B & (scores_BN[:, 0] / norm > ended_scores_BN[:, -1]),
        )

    nothing_BN = jnp.full((batch_size, num_beams), -jnp.inf)
    empty_BNT = _empty(batch_size, num_beams, max_length)
    start = _Beams(
        position=jnp.int32(0),
        cache=cache,
        tokens_BNT=empty_BNT,
        # All beams begin alike, so that only one of them may go on.
        scores_BN=nothing_BN.at[:, 0].set(0.0),
        ended_tokens_BNT=empty_BNT,
        ended_scores_BN=nothing_BN,
        open_B=jnp.ones(batch_size, bool),
    )
    return jax.lax.while_loop(is_unfinished, advance, start).ended_tokens_BNT[:, 0, 1:]


def _empty(*shape: int) -> jax.Array:
    """Returns sequences of the start token, with room for what follows."""
    tokens = jnp.full((*shape[:-1], shape[-1] + 1), PAD, jnp.int32)
    return tokens.at[..., 0].set(START)


def _choose(x: jax.Array, indices: jax.Array) -> jax.Array:
    """Gathers along axis 1, for every example by itself; x (B, M, ...), indices (B, N)."""
    return jax.vmap(lambda row, chosen: row[chosen])(x, indices)
