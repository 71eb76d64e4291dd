"""Images in folders that are named after their class, as ImageNet is kept: train/CLASS/*.jpg and val/CLASS/*.jpg."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from hessdiag.errors import HessdiagError

SUFFIXES = (".jpg", ".jpeg", ".png")
LAYOUT = "name a folder with train/CLASS/*.jpg and val/CLASS/*.jpg"


@dataclass(frozen=True)
class ImageFolder:
    """Files of images with a class each; they are read when they are asked for.

    Attributes:
        folder: that of the class folders.
        names: of the files in it, as `CLASS/NAME`, sorted.
        targets: class of each, from 0 in the order of the training part's class names.
    """

    folder: Path
    names: tuple[str, ...]
    targets: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.names)

    def read(self, number: int) -> Image.Image:
        """Decode an image, in three channels.

        Raises:
            HessdiagError: the file is damaged, or gone.
        """
        path = self.folder / self.names[number]
        try:
            with Image.open(path) as image:
                return image.convert("RGB")
        except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # what Pillow raises
            raise HessdiagError(f"cannot read the image {str(path)!r} ({error}): replace or delete it") from error


@dataclass(frozen=True)
class ImageSplit:
    """A training and a validation part of the same classes.

    Attributes:
        train, validation: their images.
        classes: names, in order.
    """

    train: ImageFolder
    validation: ImageFolder
    classes: tuple[str, ...]

    def digest(self) -> str:
        """Return a short digest of the names of all files; what is in them is not read."""
        summed = hashlib.blake2b(digest_size=8)
        for part in (self.train, self.validation):
            summed.update("\n".join((*part.names, "")).encode())
        return summed.hexdigest()


def read_image_split(folder: Path) -> ImageSplit:
    """List the images of `folder`/train and `folder`/val.

    Raises:
        HessdiagError: a part is missing or empty, or the validation part has a class that the training part lacks.
    """
    classes = tuple(sorted(path.name for path in _listed(folder / "train") if path.is_dir()))
    numbers = {name: number for number, name in enumerate(classes)}
    return ImageSplit(_read(folder / "train", numbers), _read(folder / "val", numbers), classes)


def _read(folder: Path, numbers: dict[str, int]) -> ImageFolder:
    names: list[str] = []
    targets: list[int] = []
    for path in _listed(folder):
        if not path.is_dir():
            continue
        if path.name not in numbers:
            raise HessdiagError(f"{str(path)!r} is of a class that has no folder in train: {LAYOUT}")
        found = sorted(f"{path.name}/{file.name}" for file in _listed(path) if file.suffix.lower() in SUFFIXES)
        names += found
        targets += [numbers[path.name]] * len(found)
    if not names:
        raise HessdiagError(f"there are no images in {str(folder)!r}: {LAYOUT}")
    return ImageFolder(folder, tuple(names), tuple(targets))


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise HessdiagError(f"cannot list {str(folder)!r} ({error.strerror}): {LAYOUT}") from error
