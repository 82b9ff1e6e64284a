"""Where prepared data is kept, under which key, and how it gets there whole or not at all."""

import contextlib
import errno
import fcntl
import glob
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from models.errors import UserError


def default_cache_dir() -> Path:
    """Returns $KPD_CACHE, else ~/.cache/kpd."""
    return Path(os.environ.get("KPD_CACHE") or "~/.cache/kpd").expanduser()


def digest(facts: dict[str, Any]) -> str:
    """Returns a short name for `facts`: equal facts, equal name."""
    return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:20]


def make_folder(folder: Path) -> None:
    """Makes `folder`. Raises UserError if it cannot be made or written to."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UserError(
            f"{folder}: cannot keep prepared data here: {error.strerror}."
            " Point KPD_CACHE at a folder that can be written to."
        ) from None


@contextlib.contextmanager
def locked(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Holds the lock of `path` alone; the system frees it however the process ends."""
    with path.with_name(path.name + ".lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_whole(
    path: Path, write: Callable[[Path], None], on_wait: Callable[[], None] = lambda: None
) -> None:
    """Lets `write` fill a temporary folder that then becomes `path`, unless `path` is there.

    Of processes that want the same one, one writes and the others wait. If writing fails nothing
    stays; what a killed process left behind is removed.
    """
    make_folder(path.parent)
    with locked(path, on_wait):
        for left_over in path.parent.glob(f"{glob.escape(path.name)}.tmp*"):
            shutil.rmtree(left_over)
        if path.exists():
            return
        temporary = path.with_name(f"{path.name}.tmp{os.getpid()}")
        try:
            temporary.mkdir()
            write(temporary)
            for file in temporary.rglob("*"):
                _flush(file)
            temporary.rename(path)
            _flush(path.parent)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _flush(path: Path) -> None:
    """Puts a file or the names in a folder on the disk, so that a rename never precedes them."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def disk_full_is_users(folder: Path) -> Iterator[None]:
    """Turns a full disk or quota into a UserError that says where, and how much is free."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # libraries in C++ say it in words only
        full = (errno.ENOSPC, errno.EDQUOT)
        if getattr(error, "errno", None) not in full and os.strerror(full[0]) not in str(error):
            raise
        free = shutil.disk_usage(folder).free / 1e9
        raise UserError(
            f"{folder}: disk full while preparing ({free:.1f} GB free); nothing was kept."
            " Free some, or point KPD_CACHE elsewhere."
        ) from None
