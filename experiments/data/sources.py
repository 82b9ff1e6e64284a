"""What a corpus is made of now: its files or its prepared TFDS set, and a digest of them."""

import glob
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from experiments.data import corpus
from experiments.data.config import DataConfig
from experiments.data.documents import SUFFIXES
from models.errors import UserError, did_you_mean

if TYPE_CHECKING:
    import tensorflow_datasets as tfds

_BY_HAND = (
    " ImageNet's two archives, ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar, must have been"
    " downloaded by hand from image-net.org into downloads/manual below data_dir."
)


def matched_files(pattern: str) -> list[Path]:
    """Returns the files that data.files matches, sorted. Raises UserError if none or not text."""
    paths = [Path(name) for name in sorted(glob.glob(os.path.expanduser(pattern), recursive=True))]
    paths = [path.resolve() for path in paths if path.is_file()]
    if not paths:
        raise UserError(f"data.files={pattern}: matches no file (looked from {Path.cwd()}).")
    for path in paths:
        if not path.name.endswith(SUFFIXES):
            raise UserError(
                f"data.files={pattern}: cannot read {path.name}; must end in {', '.join(SUFFIXES)}."
            )
    return paths


def prepared_tfds(cfg: DataConfig) -> "tfds.core.DatasetBuilder":
    """Returns the builder of a TFDS set that is on this disk already.

    Raises UserError at once if it is unknown or not prepared: TFDS itself would try to download
    it, and, without a network, retry for minutes.
    """
    import tensorflow_datasets as tfds

    data_dir = cfg.tfds_data_dir or str(tfds.core.constants.DATA_DIR)
    base_name = re.split("[/:]", cfg.tfds_name)[0]
    known = tfds.list_builders(with_community_datasets=False)  # the others take a network
    if base_name not in known and not Path(data_dir, base_name).is_dir():
        raise UserError(
            f"data.tfds_name={cfg.tfds_name}: neither does TFDS know such a set, nor is there one"
            f" in {data_dir}.{did_you_mean(base_name, known)}"
        )
    try:
        builder = tfds.builder(cfg.tfds_name, data_dir=data_dir)
    except (ValueError, AssertionError) as error:  # no such configuration or version
        configs = tfds.builder_cls(base_name).builder_configs if base_name in known else {}
        of_these = f" Configurations: {', '.join(list(configs)[:10])}." if configs else ""
        reason = str(error).rpartition('": ')[2].partition(" Here are")[0].partition("\n")[0]
        raise UserError(f"data.tfds_name={cfg.tfds_name}: {reason}{of_these}") from None
    if not builder.is_prepared():
        raise UserError(
            f"data.tfds_name={cfg.tfds_name}: not prepared under {builder.data_dir}. Run"
            f" `{build_command(cfg, data_dir)}` where there is a network, or set"
            " data.tfds_data_dir."
            f"{_BY_HAND if base_name == 'imagenet2012' else ''}"
        )
    return builder


def build_command(cfg: DataConfig, data_dir: str) -> str:
    """Returns the command that prepares the TFDS set, images in a format to read at random."""
    if cfg.source == "tfds":
        return f"tfds build {cfg.tfds_name}"
    # As Python, since `tfds build` does not start where Apache Beam is not installed.
    return (
        'python -c "import tensorflow_datasets as tfds;'
        f" tfds.builder('{cfg.tfds_name}', data_dir='{data_dir}', file_format='array_record')"
        '.download_and_prepare()"'
    )


def check_splits(cfg: DataConfig, builder: "tfds.core.DatasetBuilder") -> dict[str, str]:
    """Returns the set's own names of `train` and `validation`. Raises UserError if it lacks one."""
    splits = {"train": cfg.tfds_train_split, "validation": cfg.tfds_validation_split}
    for name, split in splits.items():
        try:
            builder.info.splits[split]
        except (KeyError, ValueError):
            raise UserError(
                f"data.tfds_{name}_split={split}: no split of {cfg.tfds_name} (has:"
                f" {', '.join(builder.info.splits)}, and slices such as train[:1%])."
            ) from None
    return splits


def source_digest(cfg: DataConfig) -> str:
    """Returns a digest that changes when the source's content may have. Raises UserError."""
    if cfg.source == "task":
        from experiments.downstream.sources import task_digest  # which needs this file

        return task_digest(cfg)
    if cfg.source == "files":
        stats = [(path, path.stat()) for path in matched_files(cfg.files)]
        facts = [f"{path} {stat.st_size} {stat.st_mtime_ns}" for path, stat in stats]
    elif cfg.source in ("tfds", "tfds_images"):
        folder = Path(prepared_tfds(cfg).data_dir)
        facts = [str(folder), (folder / "dataset_info.json").read_text()]
    elif cfg.source == "digits":
        from importlib.metadata import version

        facts = ["digits", version("scikit-learn")]
    else:
        facts = ["embedded", corpus.fingerprint()]
    return sha256("\n".join(facts).encode()).hexdigest()
