"""The C++ kernel is built once and whole, and its absence is said in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fff import build

ROOT = Path(__file__).parents[2]
RUN = """
import jax.numpy as jnp
from fff.config import FFFConfig
from fff.kernels import choose_kernel
print(choose_kernel(FFFConfig()))
"""


def chosen_kernel(cache: Path, **environment: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ | {"KPD_CACHE": str(cache)} | environment,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("fff:")]
    assert len(lines) <= 1
    return done.stdout.strip(), "".join(lines)


def test_no_compiler(tmp_path):
    kernel, said = chosen_kernel(tmp_path, CXX="/nowhere/c++")
    assert kernel == "xla"
    assert "no C++ compiler is found (/nowhere/c++); set CXX" in said


def test_a_compiler_that_fails(tmp_path):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\necho 'kernel.cc:1: error: no such luck' >&2\nexit 1\n")
    compiler.chmod(0o755)
    kernel, said = chosen_kernel(tmp_path / "cache", CXX=str(compiler))
    assert kernel == "xla"
    assert f"{compiler} failed: kernel.cc:1: error: no such luck" in said
    assert not list((tmp_path / "cache" / "fff").iterdir())


def test_a_cache_that_cannot_be_written_to(tmp_path):
    # A file in the place of the folder: root may write to folders without permission.
    (tmp_path / "fff").write_text("")
    kernel, said = chosen_kernel(tmp_path)
    assert kernel == "xla"
    assert "cannot be written to" in said and "KPD_CACHE" in said


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
