"""Files of sparse networks: bit-exact, small, and honest about damage."""

import json

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from models.errors import UserError
from sparsity.config import PruningConfig
from sparsity.export import load, save_compressed, save_dense
from sparsity.plan import named_leaves


def network(dtype=np.float32, keep=None) -> dict:
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.normal(size=shape).astype(dtype)

    wi, wo = normal(2, 16, 24), normal(24, 16)
    for matrix in (wi, wo):
        mask = np.zeros(matrix.shape, bool)
        groups = np.moveaxis(mask, -2, -1).reshape(*mask.shape[:-2], mask.shape[-1], -1, 4)
        groups[..., :2] = True
        if keep is None:
            mask = np.moveaxis(groups.reshape(*groups.shape[:-2], -1), -1, -2)
        else:
            mask = rng.random(mask.shape) < keep
        matrix[~mask] = 0
    # Values that a careless encoding loses.
    wo.flat[np.flatnonzero(wo)[:3]] = [np.nan, -0.0, np.inf]
    return {"encoder": {"layers": {"wi": wi, "norm": normal(2, 16)}, "wo": wo}, "scalar": normal()}


def same_bits(left: dict, right: dict) -> None:
    left, right = dict(named_leaves(left)), dict(named_leaves(right))
    assert left.keys() == right.keys()
    for path, leaf in left.items():
        assert leaf.dtype == right[path].dtype and leaf.shape == right[path].shape
        assert np.asarray(leaf).tobytes() == np.asarray(right[path]).tobytes()


MASKED = PruningConfig(rule="magnitude", sparsity=0.75)
TWO_OF_FOUR = PruningConfig(rule="magnitude", sparsity=0.5, pattern="2:4")


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_round_trips(tmp_path, dtype):
    for cfg, params in ((MASKED, network(dtype, 0.25)), (TWO_OF_FOUR, network(dtype))):
        save_compressed(tmp_path / "small.safetensors", params, cfg)
        same_bits(load(tmp_path / "small.safetensors"), params)
        save_dense(tmp_path / "dense.safetensors", params)
        same_bits(load(tmp_path / "dense.safetensors"), params)
        # Dense files are ordinary safetensors.
        plain = load_file(tmp_path / "dense.safetensors")
        same_bits(plain, dict(named_leaves(params)))


def test_nm_holds_two_bits_a_value_and_a_mask_one_bit_a_weight(tmp_path):
    file = tmp_path / "x.safetensors"
    save_compressed(file, network(), TWO_OF_FOUR)
    stored = load_file(file)
    assert stored["encoder/wo::values"].size == 192
    assert stored["encoder/wo::index"].nbytes == 192 * 2 // 8
    save_compressed(file, network(keep=0.25), MASKED)
    stored = load_file(file)
    assert stored["encoder/wo::mask"].nbytes == 384 // 8
    assert stored["encoder/wo::values"].size < 384 * 0.35


@pytest.mark.parametrize(("pattern", "sparsity"), [("1:4", 0.75), ("3:8", 0.625), ("1:3", 2 / 3)])
def test_other_groups(tmp_path, pattern, sparsity):
    kept, group = (int(x) for x in pattern.split(":"))
    rng = np.random.default_rng(1)
    grouped = rng.normal(size=(4, group, 5)).astype(np.float32)
    grouped[:, kept:] = 0
    params = {"w": rng.permuted(grouped, axis=1).reshape(4 * group, 5)}
    cfg = PruningConfig(rule="magnitude", pattern=pattern, sparsity=sparsity)
    save_compressed(tmp_path / "x.safetensors", params, cfg)
    assert "w::index" in load_file(tmp_path / "x.safetensors")
    same_bits(load(tmp_path / "x.safetensors"), params)


def test_a_tensor_that_breaks_its_pattern_is_still_saved_whole(tmp_path):
    params = network()
    params["encoder"]["wo"][:4] = 1.0
    save_compressed(tmp_path / "x.safetensors", params, TWO_OF_FOUR)
    same_bits(load(tmp_path / "x.safetensors"), params)


def test_compressed_is_smaller_on_disk(tmp_path):
    params = {"w": np.where(np.arange(65536).reshape(256, 256) % 4 == 0, 1.5, 0).astype(np.float32)}
    cfg = PruningConfig(rule="magnitude", sparsity=0.75)
    dense = save_dense(tmp_path / "dense", params)
    small = save_compressed(tmp_path / "small", params, cfg)
    assert dense > 65536 * 4 and small < 65536 + 65536 // 8 + 1000
    assert (tmp_path / "small").stat().st_size == small


def _saved(tmp_path):
    file = tmp_path / "x.safetensors"
    save_compressed(file, network(keep=0.25), MASKED)
    return file


def _refused(file, text):
    with pytest.raises(UserError) as error:
        load(file)
    assert text in str(error.value)
    assert str(file) in str(error.value)


def test_missing_and_foreign_files(tmp_path):
    _refused(tmp_path / "none.safetensors", "no such file")
    (tmp_path / "text").write_text("this is not a safetensors file at all")
    _refused(tmp_path / "text", "damaged, or not a safetensors file")
    save_file({"w": np.ones(3)}, tmp_path / "foreign")
    _refused(tmp_path / "foreign", "not written by this project's export")


def test_every_truncation_is_noticed(tmp_path):
    file = _saved(tmp_path)
    whole = file.read_bytes()
    for length in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        file.write_bytes(whole[:length])
        _refused(file, "damaged")


def test_every_flipped_bit_is_noticed(tmp_path):
    file = _saved(tmp_path)
    whole = file.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    for place in np.linspace(start, len(whole) - 1, 40).astype(int):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        file.write_bytes(damaged)
        _refused(file, "does not match its digest")


def test_an_altered_layout_is_noticed(tmp_path):
    file = _saved(tmp_path)
    whole = file.read_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    layout = header["__metadata__"]["layout"]
    header["__metadata__"]["layout"] = layout.replace("[24, 16]", "[16, 24]")
    assert header["__metadata__"]["layout"] != layout
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + whole[8 + length :])
    _refused(file, "does not match its digest")


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    file = tmp_path / "missing" / "x.safetensors"
    with pytest.raises(UserError, match="cannot be written"):
        save_dense(file, network())
