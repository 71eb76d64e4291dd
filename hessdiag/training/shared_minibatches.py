"""Minibatches of images from files, shared among processes: the minibatches are the same whatever their number."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from hessdiag.datasets.image_crops import CentreCrops, RandomCrops, normalised, to_pixels
from hessdiag.datasets.image_folder import ImageFolder
from hessdiag.errors import HessdiagError, OneRankError
from hessdiag.execution.ranks import Ranks
from hessdiag.execution.seeds import stream


@dataclass(frozen=True)
class Minibatches(Dataset[Any]):
    """This process's share of every minibatch, decoded when it is asked for.

    Attributes:
        images: where they are read from.
        chosen: the numbers of the images of each share.
        crop: of an image and its number.
    """

    images: ImageFolder
    chosen: Sequence[Tensor]
    crop: Callable[[Image.Image, int], Image.Image]

    def __len__(self) -> int:
        return len(self.chosen)

    def __getitem__(self, step: int) -> Any:
        """Return pixels (B, 3, side, side) in uint8 and targets (B,), or the error, which a worker could not raise."""
        numbers = self.chosen[step].tolist()
        try:
            pixels = torch.stack([to_pixels(self.crop(self.images.read(number), number)) for number in numbers])
        except HessdiagError as error:
            return error
        return pixels, torch.tensor([self.images.targets[number] for number in numbers])


def training_minibatches(
    images: ImageFolder, *, side: int, batch_size: int, seed: int, epoch: int, ranks: Ranks
) -> Minibatches:
    """Shuffle the images anew and crop them at random; what does not fill a minibatch is left out."""
    order = torch.randperm(len(images), generator=stream(seed, f"order of epoch {epoch}"))
    whole = len(images) // batch_size * batch_size
    mine = order[:whole].view(-1, ranks.size, batch_size // ranks.size)[:, ranks.rank]  # (steps, share)
    return Minibatches(images, list(mine), RandomCrops(side, seed, epoch))


def validation_minibatches(images: ImageFolder, *, side: int, batch_size: int, ranks: Ranks) -> Minibatches:
    """Share all images out; of some processes the last minibatch is smaller, or there is one less."""
    mine = torch.arange(ranks.rank, len(images), ranks.size) if ranks.rank < len(images) else torch.empty(0)
    parts = [mine[start : start + batch_size] for start in range(0, len(mine), batch_size)]
    return Minibatches(images, parts, CentreCrops(side))


def load(minibatches: Minibatches, *, workers: int, device: torch.device) -> Iterator[tuple[Tensor, Tensor]]:
    """Decode in worker processes, and yield normalised images (B, 3, side, side) and targets on the device.

    Raises:
        OneRankError: an image cannot be read; other processes do not read it.
    """
    on_cuda = device.type == "cuda"
    loader: DataLoader[Any] = DataLoader(
        minibatches,
        batch_size=None,  # an item is a minibatch
        num_workers=workers,
        pin_memory=on_cuda,
        generator=torch.Generator(),  # the seeds of workers, which draw nothing, are not taken from the global one
    )
    for item in loader:
        if isinstance(item, HessdiagError):
            raise OneRankError(str(item)) from item
        pixels, targets = (each.to(device, non_blocking=True) for each in item)
        yield normalised(pixels), targets
