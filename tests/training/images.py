"""A folder of images laid out as ImageNet is: two classes that are easy to tell apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image


def write_images(folder: Path, *, train: int = 12, val: int = 5, size: tuple[int, int] = (40, 44)) -> Path:
    """Noise that is darker in the first class, as train/CLASS/*.jpg and val/CLASS/*.jpg, so many of each class."""
    numbers = np.random.default_rng(0)
    for part, count in (("train", train), ("val", val)):
        for number, name in enumerate(("dark", "light")):
            (folder / part / name).mkdir(parents=True)
            for image in range(count):
                pixels = numbers.integers(0, 128, (*size, 3)) + 100 * number
                Image.fromarray(pixels.astype(np.uint8)).save(folder / part / name / f"{image}.jpg")
    return folder
