"""The tiny experiment of tests/experiments, here too."""

from tests.experiments.conftest import cache, corpus, in_cache, tiny, tiny_settings

__all__ = ["cache", "corpus", "in_cache", "tiny", "tiny_settings"]
