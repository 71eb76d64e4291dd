"""The standard preprocessing of ImageNet: random crops of any size for training, the centre for validation.

As the common libraries have it: a crop of 8 to 100 % of the area with sides of a ratio between 3/4 and 4/3, resized to
the side of the network, every other one mirrored; for validation the shorter side is resized to 8/7 of that side, and
the centre taken. All bilinear with antialiasing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from hessdiag.execution.seeds import stream

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's red, green and blue
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
TRIES = 10
LARGER = 256 / 224  # shorter side of a validation image, over that of its centre

Box = tuple[int, int, int, int]  # left, top, right, bottom


@dataclass(frozen=True)
class RandomCrops:
    """Crops of one epoch, each from a stream of its own: the order in which images are read makes no difference."""

    side: int
    seed: int
    epoch: int

    def __call__(self, image: Image.Image, number: int) -> Image.Image:
        """Crop the image of that number."""
        generator = stream(self.seed, f"crop of image {number} in epoch {self.epoch}")
        cut = image.crop(random_box(*image.size, generator)).resize((self.side,) * 2, Image.Resampling.BILINEAR)
        mirrored = bool(torch.rand((), generator=generator) < 0.5)
        return cut.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else cut


@dataclass(frozen=True)
class CentreCrops:
    """Centres of images."""

    side: int

    def __call__(self, image: Image.Image, number: int) -> Image.Image:
        """Crop any image."""
        width, height = image.size
        shorter = round(self.side * LARGER)
        factor = shorter / min(width, height)
        width, height = max(shorter, int(width * factor)), max(shorter, int(height * factor))
        left, top = round((width - self.side) / 2), round((height - self.side) / 2)
        resized = image.resize((width, height), Image.Resampling.BILINEAR)
        return resized.crop((left, top, left + self.side, top + self.side))


def random_box(width: int, height: int, generator: torch.Generator) -> Box:
    """Draw what is cut out of an image: area and logarithm of the ratio are uniform; the centre if ten do not fit.

    >>> random_box(1, 1, torch.Generator())
    (0, 0, 1, 1)
    """
    logs = [math.log(ratio) for ratio in RATIO]
    for area, log_ratio, across, down in torch.rand(TRIES, 4, dtype=torch.float64, generator=generator).tolist():
        pixels = width * height * (AREA[0] + area * (AREA[1] - AREA[0]))
        ratio = math.exp(logs[0] + log_ratio * (logs[1] - logs[0]))
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(across * (width - w + 1)), int(down * (height - h + 1))
            return left, top, left + w, top + h
    w, h = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def to_pixels(image: Image.Image) -> Tensor:
    """Return an image as (3, H, W) in uint8."""
    return torch.from_numpy(np.array(image)).movedim(2, 0)


def normalised(pixels: Tensor) -> Tensor:
    """Return pixels (B, 3, H, W) in uint8 as float32 with about mean 0 and variance 1 in every channel."""
    mean, deviation = (pixels.new_tensor(each, dtype=torch.float32).view(3, 1, 1) for each in (MEAN, DEVIATION))
    return (pixels.float() / 255 - mean) / deviation
