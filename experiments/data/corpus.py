"""The embedded corpus: prose and code of the standard library of the Python that runs this."""

import importlib
import os
import sys
import sysconfig
import tokenize
import types
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from models.errors import UserError

# Raise it when the same sources come to give other documents.
VERSION = "1.0.0"

# Tests are no part of the corpus, nor is what was installed beside the library. `encodings` is
# generated tables, each nearly a copy of the next, and near-copies would leak from train into
# validation, as would the source of pydoc_data, which is read as prose instead.
_SKIPPED_FOLDERS = {
    "__phello__",
    "__pycache__",
    "dist-packages",
    "encodings",
    "idle_test",
    "lib-dynload",
    "pydoc_data",
    "site-packages",
    "test",
    "tests",
}
_SKIPPED_PREFIXES = ("_sysconfigdata", "__hello__")
# Their docstrings are in no source, being written in C.
_BUILTIN_MODULES = ("builtins", "errno", "gc", "itertools", "marshal", "time")


def source_files() -> list[Path]:
    """Returns the .py files of the standard library, sorted. Raises UserError if there are none."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(
            name
            for name in subfolders
            if name not in _SKIPPED_FOLDERS and not name.startswith("config-")
        )
        found += [
            Path(folder, name)
            for name in names
            if name.endswith(".py") and not name.startswith(_SKIPPED_PREFIXES)
        ]
    if not found:
        raise UserError(f"{root}: holds no sources of the standard library. Give data.files.")
    return sorted(found)


def fingerprint() -> str:
    """Returns a digest of what the documents depend on: Python, names and sizes of the sources."""
    root = Path(sysconfig.get_path("stdlib"))
    listing = [f"{path.relative_to(root)} {path.stat().st_size}" for path in source_files()]
    return sha256("\n".join([VERSION, sys.version, *listing]).encode()).hexdigest()


def documents() -> Iterator[tuple[str, bytes]]:
    """Yields (digest of the content, UTF-8 document), each once, in the order of the digests."""
    by_digest = {sha256(text.encode()).hexdigest(): text for text in _texts() if text.strip()}
    for digest in sorted(by_digest):
        yield digest, by_digest[digest].encode()


def _texts() -> Iterator[str]:
    from pydoc_data.topics import topics

    yield from topics.values()
    for name in _BUILTIN_MODULES:
        yield _module_page(name)
    for path in source_files():
        with tokenize.open(path) as file:  # obeys the file's own coding line
            yield file.read()


def _module_page(name: str) -> str:
    """Returns the docstrings of a module that has no source, each under the name it explains."""
    module = importlib.import_module(name)
    parts = [f"{name}\n\n{module.__doc__}"]
    for key, value in sorted(vars(module).items()):
        # What a running program put there must not get into the corpus.
        own = isinstance(value, type | types.BuiltinFunctionType) and value.__module__ == name
        if key.startswith("_") or not own:
            continue
        parts.append(f"{name}.{key}\n\n{value.__doc__}")
        if isinstance(value, type):
            parts += [
                f"{name}.{key}.{method}\n\n{member.__doc__}"
                for method, member in sorted(vars(value).items())
                if not method.startswith("_") and callable(member)
            ]
    return "\n\n".join(parts)
