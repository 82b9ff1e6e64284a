"""Greedy and beam search over a small process whose every sequence can be scored."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from models.search import beam_search, greedy_search

B, T, V = 3, 4, 4
EOS = 1
RNG = np.random.default_rng(170)
FIRST = RNG.standard_normal((B, V))
MIX = RNG.standard_normal((V, V))
WEIGHTS = RNG.standard_normal((V, V))


def process(state, tokens):
    """One step: a state (..., V) that remembers all tokens (...), and logits from it."""
    state = np.tanh(state @ MIX + 2 * np.eye(V)[tokens])
    return state, state @ WEIGHTS


def step(cache, tokens_BN, position):
    """The same process as JAX sees it; its cache has an axis of layers, here one, in front."""
    state = jnp.tanh(cache["state"][0] @ MIX.astype("f4") + 2 * jax.nn.one_hot(tokens_BN, V))
    return state @ WEIGHTS.astype("f4"), {"state": state[None]}


def start(num_beams):
    return {"state": jnp.asarray(np.repeat(FIRST[None, :, None], num_beams, axis=2), "float32")}


def log_probabilities(example, sequence):
    """Returns log p of each token of a sequence."""
    state, last, values = FIRST[example], 0, []
    for token in sequence:
        state, logits = process(state, last)
        values.append(logits[token] - np.log(np.exp(logits).sum()))
        last = token
    return np.array(values)


def sequences():
    """Returns every sequence: up to its first end, or of the greatest length."""
    inner = [token for token in range(V) if token != EOS]
    for length in range(1, T):
        yield from ((*tokens, EOS) for tokens in itertools.product(inner, repeat=length - 1))
    yield from (
        (*tokens, last) for tokens in itertools.product(inner, repeat=T - 1) for last in range(V)
    )


def padded(rows):
    return [[*row, *[0] * (T - len(row))] for row in rows]


@functools.cache
def compiled(num_beams):
    sizes = {"batch_size": B, "max_length": T, "num_beams": num_beams}
    return jax.jit(lambda cache, penalty: beam_search(step, cache, length_penalty=penalty, **sizes))


def searched(num_beams, length_penalty):
    return compiled(num_beams)(start(num_beams), length_penalty)


def best(length_penalty):
    def score(example, sequence):
        return log_probabilities(example, sequence).sum() / len(sequence) ** length_penalty

    return padded(max(sequences(), key=functools.partial(score, example)) for example in range(B))


# A search with as many beams as there are sequences drops none, whatever the penalty.
@pytest.mark.parametrize("length_penalty", [-1.0, 0.0, 0.6, 1.0])
def test_beams_find_the_best_of_all_sequences(length_penalty):
    everything = len(list(sequences()))
    np.testing.assert_array_equal(searched(everything, length_penalty), best(length_penalty))


def test_the_penalty_decides():
    assert len({str(best(penalty)) for penalty in (-1.0, 0.0, 0.6, 1.0)}) == 4


def beams_by_hand(example, num_beams, length_penalty):
    """The published rule, one list of sequences at a time."""
    running: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    ended: list[tuple[tuple[int, ...], float]] = []
    for length in range(1, T + 1):
        candidates = sorted(
            (
                ((*tokens, token), log_probabilities(example, (*tokens, token)).sum())
                for tokens, _ in running
                for token in range(V)
            ),
            key=lambda candidate: -candidate[1],
        )[: 2 * num_beams]
        ends = [tokens[-1] == EOS or length == T for tokens, _ in candidates]
        for (tokens, total), end in list(zip(candidates, ends, strict=True))[:num_beams]:
            if end:
                ended.append((tokens, total / length**length_penalty))
        ended = sorted(ended, key=lambda candidate: -candidate[1])[:num_beams]
        running = [one for one, end in zip(candidates, ends, strict=True) if not end][:num_beams]
        best_running = max((total for _, total in running), default=-np.inf)
        if len(ended) == num_beams and best_running / length**length_penalty <= ended[-1][1]:
            break
    return ended[0][0]


@pytest.mark.parametrize("num_beams", [1, 2, 3])
@pytest.mark.parametrize("length_penalty", [0.0, 1.0])
def test_few_beams_follow_the_rule(num_beams, length_penalty):
    expected = padded(beams_by_hand(example, num_beams, length_penalty) for example in range(B))
    np.testing.assert_array_equal(searched(num_beams, length_penalty), expected)


def test_greedy_takes_the_best_token_and_one_beam_without_penalty_is_greedy():
    expected = []
    for example in range(B):
        state, tokens = FIRST[example], [0]
        while len(tokens) <= T and tokens[-1] != EOS:
            state, logits = process(state, tokens[-1])
            tokens.append(int(logits.argmax()))
        expected.append(tokens[1:])
    assert {len(tokens) < T for tokens in expected} == {True, False}
    greedy = jax.jit(functools.partial(greedy_search, step, batch_size=B, max_length=T))
    np.testing.assert_array_equal(greedy(start(1)), padded(expected))
    np.testing.assert_array_equal(searched(1, 0.0), padded(expected))


@pytest.mark.parametrize("num_beams", [None, 2])
def test_no_step_is_taken_once_all_have_ended(num_beams):
    """Rows end after 2 and 3 tokens at a near certain end, hence after 3 of 50 steps."""
    taken = []

    def ending_step(cache, tokens_BN, position):
        jax.debug.callback(lambda position: taken.append(int(position)), position)
        beams = tokens_BN.shape[1]
        end_B11 = jnp.where(position >= jnp.array([1, 2]), 60.0, -60.0)[:, None, None]
        is_eos_V = (jnp.arange(V) == EOS)[None, None]
        logits_B1V = jnp.where(is_eos_V, end_B11, jnp.array([[[0.0, 0.0, 1.0, 0.5]]]))
        return jnp.broadcast_to(logits_B1V, (2, beams, V)), cache

    sizes = {"batch_size": 2, "max_length": 50}
    if num_beams is None:
        tokens = greedy_search(ending_step, (), **sizes)
    else:
        tokens = beam_search(ending_step, (), num_beams=num_beams, length_penalty=0.6, **sizes)
    jax.effects_barrier()
    expected = np.zeros((2, 50), int)
    expected[0, :2], expected[1, :3] = [2, EOS], [2, 2, EOS]
    np.testing.assert_array_equal(tokens, expected)
    assert taken == [0, 1, 2]
