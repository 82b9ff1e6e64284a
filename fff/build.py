"""Builds the C++ kernel with the system's compiler on first use, and registers it with XLA."""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import jax

_FOLDER = Path(__file__).parent / "native"
_SOURCE = _FOLDER / "kernel.cc"
_FLAGS = (
    *("-std=c++17", "-O3", "-march=native", "-ffp-contract=fast", "-DNDEBUG"),
    *("-fPIC", "-shared", "-w"),
)
_TIMEOUT_S = 300

# What XLA calls the handlers, which are the library's symbols.
FORWARD = "kpd_fff_forward"
FORWARD_WITH_PATH = "kpd_fff_forward_with_path"
BACKWARD = "kpd_fff_backward"


class CannotBuild(RuntimeError):
    """Why there is no C++ kernel here, in one line."""


@functools.cache
def is_available() -> bool:
    """Whether the kernel can be used in this process; says once, on stderr, why not."""
    try:
        library = ctypes.CDLL(str(build(cache_folder())))
    except (CannotBuild, OSError) as error:
        print(f"fff: no C++ kernel, XLA's gather instead: {error}", file=sys.stderr)
        return False
    for name in (FORWARD, FORWARD_WITH_PATH, BACKWARD):
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")
    return True


def cache_folder() -> Path:
    """Returns the folder of built kernels: $KPD_CACHE/fff, else ~/.cache/kpd/fff."""
    return Path(os.environ.get("KPD_CACHE") or "~/.cache/kpd").expanduser() / "fff"


def build(folder: Path) -> Path:
    """Returns the shared library, built in `folder` unless one for this machine is there.

    It is built under a name of its own and then renamed, so that a library is whole or absent; of
    processes that build at once the last one wins with the same file. Raises CannotBuild.
    """
    compiler = _compiler()
    library = folder / f"kernel-{_key(compiler)}.so"
    if library.exists():
        return library
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(suffix=".so", dir=folder)
    except OSError as error:
        raise CannotBuild(
            f"{folder} cannot be written to ({error.strerror}); point KPD_CACHE elsewhere"
        ) from None
    os.close(handle)
    try:
        _compile(compiler, Path(temporary))
        os.chmod(temporary, 0o755)
        os.replace(temporary, library)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return library


def _compiler() -> str:
    """Returns the path of $CXX, or of the first compiler that is found."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++", "c++"]
    for name in names:
        if path := shutil.which(name):
            return path
    raise CannotBuild(f"no C++ compiler is found ({', '.join(names)}); set CXX to one")


def _key(compiler: str) -> str:
    """Names what decides the machine code: sources, compiler, its flags, headers, processor."""
    facts = [compiler, *_FLAGS, jax.__version__, _compiler_version(compiler), _processor()]
    sources = sorted((*_FOLDER.glob("*.h"), _SOURCE))
    parts = [*(fact.encode() for fact in facts), *(path.read_bytes() for path in sources)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]


def _compiler_version(compiler: str) -> str:
    stat = os.stat(compiler)
    return f"{os.path.realpath(compiler)} {stat.st_size} {stat.st_mtime_ns}"


def _processor() -> str:
    """Names the processor by what it can do: a folder may be shared by different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("flags", "Features", "model name")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def _compile(compiler: str, output: Path) -> None:
    link = ("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()
    command = [compiler, *_FLAGS, *link, "-I", jax.ffi.include_dir(), str(_SOURCE)]
    try:
        done = subprocess.run(
            [*command, "-o", str(output)], capture_output=True, text=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBuild(f"{compiler} did not run to its end: {error}") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "error" in line] or ["no message"]
        raise CannotBuild(f"{compiler} failed: {lines[0]}")
