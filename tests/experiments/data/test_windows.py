"""Windows are written in order and whole, and read back as they were, or not at all."""

import errno
from pathlib import Path

import numpy as np
import pytest

from experiments.data.windows import Prepared, WindowWriter, write_array, write_facts
from models.errors import UserError


def write(folder, documents, vocab_size=1000, length=10):
    writer = WindowWriter(folder / "train_tokens.bin", length, vocab_size)
    for document in documents:
        writer.add(np.array(document, np.int32))
    about = writer.close()
    write_facts(folder, {"vocab_size": vocab_size, "arrays": {"train_tokens": about}})
    return writer


@pytest.mark.parametrize("vocab_size", [1000, 70_000])
def test_windows_are_the_stream_in_order(tmp_path, vocab_size):
    first = vocab_size - 703
    documents = np.split(np.arange(first, vocab_size), [1, 5, 5, 300, 301])
    writer = write(tmp_path, documents, vocab_size)
    tokens = Prepared.open(tmp_path).array("train", "tokens")
    assert tokens.shape == (70, 10)
    # The rest, less than a window, is dropped.
    np.testing.assert_array_equal(tokens.reshape(-1), np.arange(first, vocab_size - 3))
    np.testing.assert_array_equal(writer.token_counts[first:], [1] * 700 + [0] * 3)
    assert writer.token_counts.shape == (vocab_size,) and not writer.token_counts[:first].any()


def test_large_documents_and_many_small_ones_give_the_same_windows(tmp_path):
    tokens = np.random.default_rng(0).integers(0, 1000, 600_000)
    digests = []
    for parts in (2, 30_000):
        folder = tmp_path / str(parts)
        folder.mkdir()
        write(folder, np.array_split(tokens, parts), length=568)
        digests.append(Prepared.open(folder).digest)
    assert digests[0] == digests[1]


def test_the_largest_id_fits(tmp_path):
    write(tmp_path, [[65_535] * 10], vocab_size=65_536)
    assert (Prepared.open(tmp_path).array("train", "tokens") == 65_535).all()


def test_digest_follows_the_content(tmp_path):
    digests = set()
    for value in (1, 2, 1):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        write(folder, [[value] * 10])
        digests.add(Prepared.open(folder).digest)
    assert len(digests) == 2


def test_read_only(tmp_path):
    write(tmp_path, [range(10)])
    with pytest.raises(ValueError, match="read-only"):
        Prepared.open(tmp_path).array("train", "tokens")[0, 0] = 1


def test_damaged_folders_are_refused(tmp_path):
    write(tmp_path, [range(100)])
    path = tmp_path / "train_tokens.bin"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=r"train_tokens.bin: damaged \(199 bytes, not 200\)"):
        Prepared.open(tmp_path)
    path.unlink()
    with pytest.raises(UserError, match="damaged"):
        Prepared.open(tmp_path)
    path.write_bytes(whole)
    Prepared.open(tmp_path)
    (tmp_path / "prepared.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        Prepared.open(tmp_path)


def test_arrays_come_back(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    about = write_array(tmp_path / "train_images.bin", array)
    write_facts(tmp_path, {"vocab_size": 10, "arrays": {"train_images": about}})
    np.testing.assert_array_equal(Prepared.open(tmp_path).array("train", "images"), array)


def test_a_full_disk_is_not_hidden():
    writer = WindowWriter(Path("/dev/full"), 10, 1000)
    writer.add(np.zeros(10_000, np.int32))
    with pytest.raises(OSError) as caught:
        writer.close()
    assert caught.value.errno == errno.ENOSPC
