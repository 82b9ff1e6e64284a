"""Photographs as the vision model reads them: cropped, scaled, flipped. NumPy and PIL only."""

import dataclasses
import io
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import numpy as np
from PIL import Image

from experiments.data.config import DataConfig

Split = Literal["train", "validation", "test"]
# left, top, right, bottom in pixels of the stored image
Box = tuple[float, float, float, float]

_MODES = {1: "L", 3: "RGB"}
# Share of the image's area in a training crop: big_vision's inception_crop, used for the plain ViT
# of Beyer et al. 2022 (arXiv 2205.01580). Szegedy et al. 2015, whose crop it is, took 0.08 and up.
_LEAST_AREA = 0.05
# Longest side over shortest of a training crop (Szegedy et al. 2015, arXiv 1409.4842, section 6).
_MOST_ASPECT = 4 / 3
# Crops drawn until one fits into the image; each takes two words.
_ATTEMPTS = 10
_WORDS_PER_ROW = 2 * _ATTEMPTS + 3
# Validation keeps the middle 224 pixels of an image whose shorter side was made 256.
_CENTRE = 224 / 256


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageClassification:
    """Labelled images of any size, made square: at random in training, always alike otherwise."""

    arrays = ("records",)
    weight = "weights"
    window_length = 0

    # Height and width of an image in a batch, in pixels.
    size: int
    # 1 for grey, 3 for red, green and blue.
    channels: int
    # Whether crops and flips are drawn.
    augmented: bool

    @classmethod
    def of(cls, cfg: DataConfig, split: Split) -> "ImageClassification":
        """Returns the sizes of a configuration; the training split is augmented."""
        return cls(size=cfg.image_size, channels=cfg.image_channels, augmented=split == "train")

    @property
    def words_per_row(self) -> int:
        """Random words that one example takes."""
        return _WORDS_PER_ROW if self.augmented else 0

    def spec(self, batch_size: int) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
        """Returns (shape, dtype) of each array of a batch."""
        images = (batch_size, self.size, self.size, self.channels)
        return {
            "images": (images, np.dtype(np.float32)),
            "labels": ((batch_size,), np.dtype(np.int32)),
            "weights": ((batch_size,), np.dtype(np.float32)),
        }

    def examples(
        self, rows: dict[str, np.ndarray], words: np.ndarray, vocab_size: int
    ) -> dict[str, np.ndarray]:
        """Returns `images` in [-1, 1] (B, H, W, C), `labels` (B,) and `weights` (B,)."""
        del vocab_size
        records = rows["records"]
        # PIL lets other threads run while it decodes and scales.
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            encoded = (record["image"] for record in records)
            pixels = np.stack(list(threads.map(self._pixels, encoded, words)))
        return {
            "images": pixels.astype(np.float32) / np.float32(127.5) - np.float32(1),
            "labels": np.array([record["label"] for record in records], np.int32),
            "weights": np.ones(len(records), np.float32),
        }

    def _pixels(self, encoded: bytes, words: np.ndarray) -> np.ndarray:
        """Returns uint8 (H, W, C) of one stored JPEG or PNG."""
        with Image.open(io.BytesIO(encoded)) as stored:
            image = stored.convert(_MODES[self.channels])
        box = random_crop(image.size, words) if self.augmented else centre_crop(image.size)
        scaled = image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)
        pixels = np.asarray(scaled).reshape(self.size, self.size, self.channels)
        return pixels[:, ::-1] if self.augmented and words[-1] & np.uint64(1) else pixels


def random_crop(size: tuple[int, int], words: np.ndarray) -> Box:
    """Returns a box of random area, shape and place in an image of `size` (width, height).

    Area is uniform in [0.05, 1] of the image's, the logarithm of width over height uniform in
    ±log 4/3. The first of ten draws that fits is taken; if none does, as in a long strip, the
    largest square goes to a random place.
    """
    width, height = size
    uniform = (words >> np.uint64(11)) * 2.0**-53
    areas = (_LEAST_AREA + (1 - _LEAST_AREA) * uniform[:_ATTEMPTS]) * width * height
    aspects = _MOST_ASPECT ** (2 * uniform[_ATTEMPTS : 2 * _ATTEMPTS] - 1)
    widths = np.maximum(np.rint(np.sqrt(areas * aspects)), 1)
    heights = np.maximum(np.rint(np.sqrt(areas / aspects)), 1)
    fitting = np.flatnonzero((widths <= width) & (heights <= height))
    crop_width = crop_height = min(size)
    if len(fitting):
        crop_width, crop_height = int(widths[fitting[0]]), int(heights[fitting[0]])
    left = int(uniform[2 * _ATTEMPTS] * (width - crop_width + 1))
    top = int(uniform[2 * _ATTEMPTS + 1] * (height - crop_height + 1))
    return left, top, left + crop_width, top + crop_height


def centre_crop(size: tuple[int, int]) -> Box:
    """Returns the box that becomes the middle `side` pixels once the shorter side of an image of
    `size` (width, height) is `side` · 256 / 224 pixels long.
    """
    side = min(size) * _CENTRE
    left, top = (size[0] - side) / 2, (size[1] - side) / 2
    return left, top, left + side, top + side
