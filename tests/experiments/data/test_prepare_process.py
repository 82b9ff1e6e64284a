"""Preparing as users run it: killed, run twice at once, on one core, out of disk, on much text."""

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import experiments
from experiments.data import corpus, vocabulary
from experiments.data.config import DataConfig
from experiments.data.prepare import prepare, prepared_folder
from models.errors import UserError

pytestmark = pytest.mark.slow

ROOT = Path(experiments.__file__).parents[1]


@pytest.fixture(scope="module")
def cfg(tmp_path_factory) -> DataConfig:
    """Four megabytes of text in files, with a vocabulary at hand: some seconds of work."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = [text for _, text in corpus.documents()]
    (folder / "a.txt").write_bytes(b"\n\n".join(texts)[:4_000_000])
    (folder / "vocabulary.model").write_bytes(vocabulary.train(texts[:100], 1000))
    return DataConfig(files=str(folder / "a.txt"), vocabulary_file=str(folder / "vocabulary.model"))


@pytest.fixture(scope="module")
def whole(cfg, tmp_path_factory):
    """The same, prepared without any disturbance."""
    return prepare(cfg, tmp_path_factory.mktemp("cache"))


@contextlib.contextmanager
def worker(cfg: DataConfig, cache_dir: Path, **options):
    """A preparing process that writes windows by now, or is about to."""
    job = {
        "cfg": dataclasses.asdict(cfg),
        "cache_dir": str(cache_dir),
        "folder": str(prepared_folder(cfg, cache_dir)),
    }
    cache_dir.mkdir(exist_ok=True)
    process = subprocess.Popen(
        [sys.executable, "-m", "experiments.data.prepare_worker", json.dumps(job)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(cache_dir)},  # where a killed TensorFlow leaves files
        text=True,
        **options,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "train windows" in line:
            break
    yield process
    if process.poll() is None:
        process.kill()
    process.wait()
    process.stdout.close()


def left_in(cache_dir: Path) -> list[str]:
    """What lies where prepared folders are, locks apart."""
    folder = cache_dir / "prepared"
    return [path.name for path in folder.iterdir() if path.suffix != ".lock"]


def worker_pids(cache_dir: Path) -> list[int]:
    """Processes that prepare into `cache_dir`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes().decode()
            if "prepare_worker" in command and str(cache_dir) in command:
                found.append(int(folder.name))
    return found


def test_embedded_corpus_whole(tmp_path):
    cfg = DataConfig()
    prepared = prepare(cfg, tmp_path)
    assert prepared.array("train", "tokens").shape[0] > 2000
    assert prepared.array("validation", "tokens").shape[0] > 50
    counts = prepared.facts["counts"]
    assert sum(c["bytes"] for c in counts.values()) == sum(len(t) for _, t in corpus.documents())


def test_killed_in_the_middle_leaves_nothing_half_made(whole, cfg, tmp_path):
    with worker(cfg, tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    (left_over,) = left_in(tmp_path)
    assert ".tmp" in left_over
    assert not prepared_folder(cfg, tmp_path).exists()
    assert prepare(cfg, tmp_path).digest == whole.digest
    assert left_in(tmp_path) == [whole.folder.name]


def test_terminated_cleans_up_itself(cfg, tmp_path):
    with worker(cfg, tmp_path) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 128 + signal.SIGTERM
    assert left_in(tmp_path) == []


def test_without_its_caller_the_worker_ends(cfg, tmp_path):
    with worker(cfg, tmp_path) as process:
        process.stdout.close()  # what it sees when its caller was killed
        assert process.wait(timeout=60) != 0
    assert left_in(tmp_path) == []


def test_an_interrupted_caller_ends_the_worker(cfg, tmp_path):
    def progress(done, total, unit, phase):
        if phase == "train windows":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(cfg, tmp_path, progress)
    # On a fast machine the worker may be done before it hears of it: then all of it is there.
    assert left_in(tmp_path) in ([], [prepared_folder(cfg, tmp_path).name])
    assert not worker_pids(tmp_path)


def test_two_at_once_both_end_well(whole, cfg, tmp_path):
    digests, phases = [], []

    def run():
        prepared = prepare(cfg, tmp_path, lambda done, total, unit, phase: phases.append(phase))
        digests.append(prepared.digest)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert digests == [whole.digest] * 2
    assert any(phase.startswith("waiting for another process") for phase in phases)
    assert left_in(tmp_path) == [whole.folder.name]


def test_one_core_gives_the_same_bytes(whole, cfg, tmp_path):
    core = min(os.sched_getaffinity(0))
    with worker(cfg, tmp_path, preexec_fn=lambda: os.sched_setaffinity(0, {core})) as process:
        process.stdout.read()
        assert process.wait() == 0
    assert prepare(cfg, tmp_path).digest == whole.digest


def test_what_the_user_did_wrong_reaches_the_caller(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"good text\n" * 100 + b"\xff")
    with pytest.raises(UserError, match=r"a\.txt: not UTF-8: .* at byte 1000, line 101"):
        prepare(DataConfig(files=str(tmp_path / "a.txt")), tmp_path / "cache")


def test_a_killed_worker_is_an_error(cfg, tmp_path):
    def progress(done, total, unit, phase):
        if phase == "train windows":
            for pid in worker_pids(tmp_path):
                os.kill(pid, signal.SIGKILL)

    with pytest.raises(RuntimeError, match="preparing data ended with -9"):
        prepare(cfg, tmp_path, progress)


@pytest.mark.parametrize("source", ["embedded", "files"])
def test_a_full_disk(cfg, tmp_path, source):
    """A megabyte holds neither the TFDS set of the embedded corpus nor the windows of the files."""
    if source == "embedded":
        cfg = DataConfig()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system")
    try:
        with pytest.raises(UserError, match=r"disk full while preparing .*nothing was kept"):
            prepare(cfg, tmp_path / "cache")
        assert left_in(tmp_path / "cache") == []
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)


def test_memory_does_not_grow_with_the_corpus(cfg, tmp_path):
    """Peak memory of the worker on 4 and on 40 megabytes of the same text."""
    texts = Path(cfg.files).read_bytes()

    def peak_megabytes(copies: int) -> float:
        folder = tmp_path / str(copies)
        folder.mkdir()
        for k in range(copies):
            (folder / f"{k}.txt").write_bytes(texts)
        many = dataclasses.replace(cfg, files=str(folder / "*.txt"))
        with worker(many, tmp_path / "cache") as process:
            process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        return usage.ru_maxrss / 1024

    small, large = peak_megabytes(1), peak_megabytes(10)
    assert large < small + 25  # the texts themselves are 36 more
