"""A T5 small enough to train in seconds, on a text that any Python has."""

import dataclasses
import pydoc_data.topics

import pytest

from experiments import registry

# The same as command-line flags, for runs in another process.
TINY = {
    "model.vocab_size": 612,
    "model.model_dim": 16,
    "model.mlp_dim": 32,
    "model.num_heads": 2,
    "model.head_dim": 8,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "data.vocabulary_size": 512,
    "data.inputs_length": 32,
    "data.targets_length": 10,
    "train.batch_size": 4,
    "train.log_every_steps": 5,
    "train.eval_batches": 2,
    "train.profile_steps": 6,
    "train.warmup_steps": 2,
    # One of the simulated devices.
    "mesh.data": 1,
}


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """A folder with a text file of some 100 kB."""
    folder = tmp_path_factory.mktemp("corpus")
    topics = sorted(pydoc_data.topics.topics.items())
    text = "\n\n".join(text for _, text in topics)[:150_000]
    (folder / "topics.txt").write_text(text)
    return folder


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """The KPD_CACHE of all tests that run experiments."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def in_cache(cache, monkeypatch):
    monkeypatch.setenv("KPD_CACHE", str(cache))


@pytest.fixture(scope="session")
def tiny_settings(corpus):
    """path=value assignments that make an experiment tiny."""
    return [f"{path}={value}" for path, value in TINY.items()] + [f"data.files={corpus}/*.txt"]


@pytest.fixture
def tiny(tiny_settings, in_cache):
    """Makes a tiny form of a registered experiment, with more assignments on top."""
    from experiments.overrides import apply_overrides

    def make(name="sparse_t5_75", budget="24steps", seed=0, settings=()):
        given = {setting.partition("=")[0]: setting for setting in tiny_settings}
        given |= {setting.partition("=")[0]: setting for setting in settings}
        if name.startswith("sparse"):
            given.setdefault("pruning.update_every_steps", "pruning.update_every_steps=5")
        experiment = dataclasses.replace(registry.resolve(name, "demo"), budget=budget, seed=seed)
        experiment = apply_overrides(experiment, list(given.values()))
        experiment.check()
        return experiment

    return make


@pytest.fixture(autouse=True)
def equal_time_is_not_measured(monkeypatch):
    # Measured beside running tests it would be wrong, and kept.
    monkeypatch.setattr("experiments.fff_bert.equal_time_width", lambda *_: 50)
