"""Crops, flips and scaling of images, against ramps whose pixels say where they come from."""

import io

import numpy as np
import pytest
from PIL import Image

from experiments.data.config import DataConfig
from experiments.data.images import centre_crop, random_crop
from experiments.data.objectives import objective_of
from experiments.data.randomness import row_words

WIDTH, HEIGHT = 250, 180


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def ramp() -> bytes:
    """Red is the column, green the row of each pixel."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    return png(np.stack([columns, rows, np.zeros_like(rows)], axis=-1).astype(np.uint8))


def examples(split: str, encoded: bytes, words: np.ndarray, size: int, channels: int = 3):
    cfg = DataConfig(
        objective="image_classification", tfds_name="x", image_size=size, image_channels=channels
    )
    records = np.array([{"image": encoded, "label": 7}] * len(words), object)
    return objective_of(cfg, split).examples({"records": records}, words, 10)


def expected_ramp(start: float, length: float, size: int) -> np.ndarray:
    """The centres of `size` equal parts of an interval of pixels, as values in [-1, 1]."""
    return (start + (np.arange(size) + 0.5) * length / size - 0.5) / 127.5 - 1


def is_ramp(image: np.ndarray, box: tuple[float, ...]) -> bool:
    """Whether a scaled ramp shows that box; its outermost pixels depend on what is beyond it."""
    left, top, right, bottom = box
    size = len(image)
    columns = np.abs(image[:, :, 0] - expected_ramp(left, right - left, size)[None])
    rows = np.abs(image[:, :, 1] - expected_ramp(top, bottom - top, size)[:, None])
    return max(columns[:, 2:-2].max(), rows[2:-2].max()) <= 0.8 / 127.5


def test_training_shows_the_drawn_box_and_flips_half_of_the_time():
    words = row_words(3, 0, 0, 40, 23)
    batch = examples("train", ramp(), words, size=24)
    assert batch["images"].shape == (40, 24, 24, 3) and batch["images"].dtype == np.float32
    assert batch["labels"].tolist() == [7] * 40 and batch["weights"].tolist() == [1.0] * 40
    flips = (words[:, 22] % np.uint64(2)).astype(bool)
    assert 10 < flips.sum() < 30
    for image, flip, drawn in zip(batch["images"], flips, words, strict=True):
        box = random_crop((WIDTH, HEIGHT), drawn)
        assert is_ramp(image[:, ::-1] if flip else image, box)
        assert not is_ramp(image if flip else image[:, ::-1], box)


def test_validation_shows_the_centre_of_the_image_made_smaller():
    """Against the two steps of the recipe: the shorter side to 256, the middle 224 x 224."""
    image = examples("validation", ramp(), np.zeros((1, 0), np.uint64), size=224)["images"][0]
    resized = Image.open(io.BytesIO(ramp())).resize((WIDTH * 256 // HEIGHT, 256), Image.BILINEAR)
    left, top = (resized.width - 224) / 2, (256 - 224) / 2
    cropped = np.asarray(resized)[int(top) :, int(left) :][:224, :224]
    np.testing.assert_allclose(image, cropped / 127.5 - 1, atol=1.6 / 127.5)
    assert is_ramp(image, centre_crop((WIDTH, HEIGHT)))


def test_centre_crop():
    assert centre_crop((256, 256)) == (16, 16, 240, 240)
    assert centre_crop((300, 256)) == (38, 16, 262, 240)
    assert centre_crop((256, 512)) == (16, 144, 240, 368)


def test_random_crops_have_the_areas_shapes_and_places_that_they_should():
    boxes = np.array([random_crop((400, 300), words) for words in row_words(0, 0, 0, 3000, 23)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes.min() == 0 and boxes[:, 2].max() == 400 and boxes[:, 3].max() == 300
    areas, aspects = widths * heights / (400 * 300), widths / heights
    assert 0.049 < areas.min() < 0.07 and 0.9 < areas.max() <= 1
    assert 0.74 < aspects.min() < 0.77 and 1.3 < aspects.max() < 1.35
    small = areas < 0.5  # such always fit
    assert abs(areas[small].mean() - 0.275) < 0.01
    assert abs(np.log(aspects[small]).mean()) < 0.015
    room = 400 - widths
    assert abs((boxes[:, 0] / np.maximum(room, 1))[room > 100].mean() - 0.5) < 0.03


@pytest.mark.parametrize("size", [(2000, 20), (20, 2000), (1, 1), (1, 50)])
def test_of_strips_that_no_crop_fits_the_largest_square_is_taken(size):
    for words in row_words(0, 0, 0, 20, 23):
        left, top, right, bottom = random_crop(size, words)
        assert 0 <= left < right <= size[0] and 0 <= top < bottom <= size[1]
        assert 3 / 4 - 0.1 <= (right - left) / (bottom - top) <= 4 / 3 + 0.1


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "CMYK"])
def test_every_kind_of_image_gets_the_channels_that_are_asked_for(mode, channels):
    file = io.BytesIO()
    Image.new("RGB", (9, 7), (255, 255, 255)).convert(mode).save(
        file, "jpeg" if mode == "CMYK" else "png"
    )
    words = row_words(0, 0, 0, 1, 23)
    images = examples("train", file.getvalue(), words, size=4, channels=channels)["images"]
    assert images.shape == (1, 4, 4, channels)
    np.testing.assert_allclose(images, 1, atol=0.02)
