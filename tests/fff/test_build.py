"""The C++ kernel is built once and whole, and its absence is said in one line."""

import functools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fff import build
from fff.config import FFFConfig
from fff.kernels import choose_kernel, choose_training

ROOT = Path(__file__).parents[2]


@pytest.fixture
def said(monkeypatch, capsys):
    """Lets the kernel be looked for anew; returns what is said when it is needed twice."""

    def look() -> str:
        anew = functools.cache(build.is_available.__wrapped__)
        monkeypatch.setattr(build, "is_available", anew)
        assert [choose_kernel(FFFConfig()), choose_training(FFFConfig())] == ["xla", "xla"]
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("fff: no C++ kernel, XLA's gather instead: ")
        return line

    return look


def test_no_compiler(tmp_path, monkeypatch, said):
    monkeypatch.setenv("KPD_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", "/nowhere/c++")
    assert "no C++ compiler is found (/nowhere/c++); set CXX" in said()


def test_a_compiler_that_fails(tmp_path, monkeypatch, said):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'kernel.cc:1: error: no such luck' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("KPD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", str(compiler))
    assert f"{compiler} failed: kernel.cc:1: error: no such luck" in said()
    assert not list((tmp_path / "cache" / "fff").iterdir())


def test_a_cache_that_cannot_be_written_to(tmp_path, monkeypatch, said):
    # A file in the place of the folder: root may write to folders without permission.
    (tmp_path / "fff").write_text("")
    monkeypatch.setenv("KPD_CACHE", str(tmp_path))
    assert "cannot be written to" in (line := said()) and "KPD_CACHE" in line


def test_a_library_that_cannot_be_loaded(tmp_path, monkeypatch, said):
    monkeypatch.setenv("KPD_CACHE", str(tmp_path))
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    assert "kernel-" in said()


def fake_compiler(folder: Path) -> Path:
    """A compiler that takes its time and writes what it was asked to; counts its calls."""
    compiler = folder / "c++"
    compiler.write_text(
        "#!/bin/sh\n"
        f"echo called >> {folder}/calls\n"
        'while [ "$1" != "-o" ]; do shift; done\n'
        "printf half > $2; sleep 0.3; printf whole > $2\n"
    )
    compiler.chmod(0o755)
    return compiler


def test_two_processes_at_once(tmp_path):
    code = "import sys, pathlib; from fff import build; build.build(pathlib.Path(sys.argv[1]))"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path / "cache")],
            cwd=ROOT,
            env=os.environ | {"CXX": str(fake_compiler(tmp_path))},
        )
        for _ in range(2)
    ]
    assert [process.wait(60) for process in processes] == [0, 0]
    (library,) = (tmp_path / "cache").iterdir()
    assert library.read_text() == "whole"


def test_it_is_built_once_and_again_where_the_source_has_changed(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    first = build.build(tmp_path / "cache")
    assert build.build(tmp_path / "cache") == first
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
    monkeypatch.setattr(build, "_FLAGS", ("-O0",))
    assert build.build(tmp_path / "cache") != first


def test_a_compiler_that_does_not_end(tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    monkeypatch.setattr(build, "_TIMEOUT_S", 0.05)
    with pytest.raises(build.CannotBuild, match="did not run to its end"):
        build.build(tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir())
