"""Folders appear whole or not at all, whoever else is at it and whatever goes wrong."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.data import cache
from models.errors import UserError


def test_default_cache_dir(monkeypatch):
    monkeypatch.setenv("KPD_CACHE", "/somewhere")
    assert cache.default_cache_dir() == Path("/somewhere")
    monkeypatch.setenv("KPD_CACHE", "")
    assert cache.default_cache_dir() == Path.home() / ".cache" / "kpd"


def test_digest_follows_the_facts_and_not_their_order():
    assert cache.digest({"a": 1, "b": [2]}) == cache.digest({"b": [2], "a": 1})
    assert cache.digest({"a": 1}) != cache.digest({"a": 2})


def test_a_folder_becomes_visible_when_it_is_whole(tmp_path):
    path = tmp_path / "deep" / "x"

    def write(folder):
        assert not path.exists()
        (folder / "file").write_text("content")

    cache.make_whole(path, write)
    assert (path / "file").read_text() == "content"
    cache.make_whole(path, lambda folder: pytest.fail("made twice"))


def test_a_failure_leaves_nothing(tmp_path):
    def write(folder):
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.make_whole(tmp_path / "x", write)
    assert [path.name for path in tmp_path.iterdir()] == ["x.lock"]


def test_left_overs_of_the_killed_go(tmp_path):
    (tmp_path / "x.tmp123" / "sub").mkdir(parents=True)
    (tmp_path / "x.tmp123" / "sub" / "half").write_text("half")
    (tmp_path / "y.tmp123").mkdir()  # another's, who may be alive
    cache.make_whole(tmp_path / "x", lambda folder: (folder / "file").touch())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["x", "x.lock", "y.tmp123"]


_MAKE_SLOWLY = """
import sys, time
from pathlib import Path
from experiments.data import cache

def write(folder):
    print("made")
    time.sleep(0.5)
    (folder / "file").write_text("content")

cache.make_whole(Path(sys.argv[1]), write, lambda: print("waited"))
"""


def test_of_several_processes_one_makes_it_and_the_others_wait(tmp_path):
    command = [sys.executable, "-c", _MAKE_SLOWLY, str(tmp_path / "x")]
    root = Path(cache.__file__).parents[2]
    processes = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) for _ in range(3)
    ]
    said = [process.communicate()[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0]
    assert said.count(["made"]) == 1
    assert all(words in (["made"], ["waited"], []) for words in said)
    assert (tmp_path / "x" / "file").read_text() == "content"


def test_a_cache_that_cannot_be_written_to(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"cannot keep prepared data here: Not a dir.*KPD_CACHE"):
        cache.make_folder(tmp_path / "file" / "cache")
    (tmp_path / "locked").mkdir(mode=0o500)
    if os.access(tmp_path / "locked", os.W_OK):
        pytest.skip("this user may write anywhere")
    with pytest.raises(UserError, match="Permission denied"):
        cache.make_folder(tmp_path / "locked")


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.EDQUOT, "Disk quota exceeded"),
        RuntimeError("write() failed: No space left on device; writing x"),
    ],
)
def test_a_full_disk_is_told(tmp_path, error):
    told = pytest.raises(UserError, match=r"disk full while preparing .*nothing was kept")
    with told, cache.disk_full_is_users(tmp_path):
        raise error


@pytest.mark.parametrize("error", [OSError(errno.EIO, "I/O"), RuntimeError("other")])
def test_other_errors_stay_what_they_are(tmp_path, error):
    with pytest.raises(type(error), match=r"I/O|other"), cache.disk_full_is_users(tmp_path):
        raise error
