"""Folders of images: which classes and files there are, and what is refused."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hessdiag.datasets.image_folder import read_image_split
from hessdiag.errors import HessdiagError
from tests.training.images import write_images


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images", train=2, val=1)


def test_classes_are_numbered_by_name_and_files_sorted(folder: Path) -> None:
    (folder / "train" / "dark" / "A.JPEG").write_bytes((folder / "train" / "dark" / "0.jpg").read_bytes())
    (folder / "train" / "dark" / "readme.txt").write_text("no image")
    split = read_image_split(folder)
    assert split.classes == ("dark", "light")
    assert split.train.names == ("dark/0.jpg", "dark/1.jpg", "dark/A.JPEG", "light/0.jpg", "light/1.jpg")
    assert split.train.targets == (0, 0, 0, 1, 1)
    assert split.validation.targets == (0, 1)


def test_images_come_in_three_channels(folder: Path) -> None:
    Image.fromarray(np.full((3, 5), 7, dtype=np.uint8)).save(folder / "train" / "dark" / "grey.png")
    split = read_image_split(folder)
    image = split.train.read(split.train.names.index("dark/grey.png"))
    assert (image.mode, image.size) == ("RGB", (5, 3))
    assert (np.array(image) == 7).all()


def test_another_list_of_files_has_another_digest(folder: Path) -> None:
    before = read_image_split(folder).digest()
    assert read_image_split(folder).digest() == before
    (folder / "val" / "dark" / "0.jpg").rename(folder / "val" / "dark" / "1.jpg")
    assert read_image_split(folder).digest() != before


def test_a_class_without_validation_images_is_no_fault_and_one_without_training_images_is(folder: Path) -> None:
    (folder / "train" / "third").mkdir()
    assert read_image_split(folder).classes == ("dark", "light", "third")
    (folder / "val" / "unknown").mkdir()
    with pytest.raises(HessdiagError, match=r"'.*val/unknown' is of a class that has no folder in train: name a"):
        read_image_split(folder)


@pytest.mark.parametrize("part", ["train", "val"])
def test_a_missing_or_empty_part_is_refused(part: str, folder: Path) -> None:
    for image in (folder / part).rglob("*.jpg"):
        image.unlink()
    with pytest.raises(HessdiagError, match=f"there are no images in '.*{part}': name a folder with train/CLASS"):
        read_image_split(folder)
    (folder / part).rename(folder / "elsewhere")
    with pytest.raises(HessdiagError, match=rf"cannot list '.*{part}' \(No such file"):
        read_image_split(folder)


@pytest.mark.parametrize("content", [b"", b"not an image", "half"])
def test_a_damaged_image_is_named(content: bytes | str, folder: Path) -> None:
    path = folder / "train" / "light" / "1.jpg"
    whole = path.read_bytes()
    path.write_bytes(content if isinstance(content, bytes) else whole[: len(whole) // 2])
    with pytest.raises(HessdiagError, match=r"cannot read the image '.*light/1.jpg' \(.*: replace or delete it"):
        read_image_split(folder).train.read(3)
