"""The standard crops of ImageNet against their definition."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from hessdiag.datasets.image_crops import (
    DEVIATION,
    MEAN,
    CentreCrops,
    RandomCrops,
    normalised,
    random_box,
    to_pixels,
)


def gradient(width: int, height: int) -> Image.Image:
    """An image whose red is the column and whose green is the row."""
    rows, columns = np.mgrid[:height, :width]
    return Image.fromarray(np.stack([columns, rows, 0 * rows], axis=2).astype(np.uint8))


def test_the_centre_is_taken_of_an_image_of_the_right_size() -> None:
    """Of 64 x 80 pixels for a side of 56, whose shorter side is 64: nothing is resized."""
    pixels = to_pixels(CentreCrops(56)(gradient(80, 64), 0))
    assert pixels.shape == (3, 56, 56)
    assert pixels[0, 0].tolist() == list(range(12, 68))
    assert pixels[1, :, 0].tolist() == list(range(4, 60))


@pytest.mark.parametrize(("width", "height"), [(500, 333), (333, 500), (8, 200), (57, 64)])
def test_the_centre_of_any_image_has_the_right_size(width: int, height: int) -> None:
    pixels = to_pixels(CentreCrops(56)(Image.new("RGB", (width, height), (1, 2, 3)), 0))
    assert pixels.shape == (3, 56, 56)
    assert (pixels == torch.tensor([1, 2, 3]).view(3, 1, 1)).all()  # nothing from outside, which would be black


def test_areas_and_ratios_of_random_crops_are_those_of_the_definition() -> None:
    """On a wide image few are rejected: area is uniform on 8 to 100 %, as far as it fits, and the ratio's logarithm."""
    generator = torch.Generator().manual_seed(0)
    boxes = np.array([random_box(1000, 1000, generator) for _ in range(4000)])
    widths, heights = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes.min() >= 0
    assert boxes[:, 2:].max() <= 1000
    areas, ratios = widths * heights / 1e6, widths / heights
    assert 0.079 < areas.min() < 0.09
    assert 0.73 < ratios.min() < 0.76
    assert 1.32 < ratios.max() < 1.35
    small = areas[areas < 0.75]  # these fit whatever their ratio
    assert np.quantile(small, 0.5) == pytest.approx((0.08 + 0.75) / 2, abs=0.02)
    assert np.mean(np.log(ratios)) == pytest.approx(0.0, abs=0.02)
    spare = 1000 - widths
    assert np.mean(boxes[spare > 0, 0] / spare[spare > 0]) == pytest.approx(0.5, abs=0.02)


def test_the_centre_of_a_narrow_image_is_taken_where_no_crop_fits() -> None:
    generator = torch.Generator().manual_seed(0)
    assert random_box(1000, 30, generator) == (480, 0, 520, 30)  # 40 x 30, the ratio 4/3
    assert random_box(30, 1000, generator) == (0, 480, 30, 520)


def test_crops_follow_from_seed_epoch_and_image() -> None:
    image = gradient(60, 60)
    first = RandomCrops(16, seed=0, epoch=0)(image, 3).tobytes()
    assert RandomCrops(16, seed=0, epoch=0)(image, 3).tobytes() == first
    others = [RandomCrops(16, seed, epoch)(image, number) for seed, epoch, number in ((1, 0, 3), (0, 1, 3), (0, 0, 4))]
    assert all(other.tobytes() != first for other in others)


def test_every_other_crop_is_mirrored() -> None:
    crops = [to_pixels(RandomCrops(16, 0, 0)(gradient(60, 60), number)).double() for number in range(400)]
    falling = sum(bool(crop[0, 0, 0] > crop[0, 0, -1]) for crop in crops)
    assert abs(falling - 200) < 4 * math.sqrt(100)
    assert all(crop[1, 0, 0] < crop[1, -1, 0] for crop in crops)  # and none is turned upside down


def test_pixels_are_normalised_by_channel() -> None:
    pixels = torch.tensor([0, 255, 51], dtype=torch.uint8).view(1, 3, 1, 1)
    expected = [(value - mean) / deviation for value, mean, deviation in zip((0, 1, 0.2), MEAN, DEVIATION, strict=True)]
    assert normalised(pixels).flatten().tolist() == pytest.approx(expected, rel=1e-6)
