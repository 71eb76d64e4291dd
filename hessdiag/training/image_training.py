"""Train one network on images that are held as one tensor on the device: no data loader, all randomness from seeds.

Order of the examples and augmentation have generators of their own, so that networks of one seed see the same
minibatches whatever their initialisation and learning rate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag.errors import HessdiagError
from hessdiag.execution.seeds import stream

MOMENTUM = 0.9
PADDING = 4  # pixels around an image before it is cropped at random
HOPELESS = 4.0  # times the loss of a constant guess: a network that is there is not coming back
LOOK = 20  # steps between two looks at the loss; each waits for the device


@dataclass(frozen=True, kw_only=True)
class ImageTraining:
    """How a network is trained.

    Attributes:
        rate: learning rate of SGD with momentum 0.9.
        epochs, batch_size: passes over the images, and examples of a step; what does not fill one is left out.
        weight_decay: λ of the added gradient λ W.
        drops: epochs after which the rate is divided by ten.
        augment: crop at random from the padded image, and mirror every other one.
        mixed_precision: compute in bfloat16 where that is safe.
    """

    rate: float
    epochs: int
    batch_size: int = 128
    weight_decay: float = 1e-4
    drops: tuple[int, ...] = ()
    augment: bool = True
    mixed_precision: bool = False


def train(network: nn.Module, images: Tensor, targets: Tensor, settings: ImageTraining, *, seed: int) -> Tensor:
    """Train in place and return the minibatch loss of every step, (T,); inf from where it diverged.

    Args:
        network: on the images' device.
        images: (N, C, H, W), in floating point.
        targets: (N,) classes.
        settings: how.
        seed: of order and augmentation.

    Raises:
        HessdiagError: there are fewer images than a minibatch has.
    """
    if len(images) < settings.batch_size:
        raise HessdiagError(f"batch size {settings.batch_size}: there are only {len(images)} images, pass less")
    steps = len(images) // settings.batch_size * settings.epochs
    losses = images.new_full((steps,), math.inf, dtype=torch.float32)
    limit = HOPELESS * math.log(int(targets.max()) + 1)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=settings.rate, momentum=MOMENTUM, weight_decay=settings.weight_decay
    )
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, list(settings.drops), gamma=0.1)
    network.train()
    step = 0
    for epoch in range(settings.epochs):
        for x, t in minibatches(images, targets, settings, seed=seed, epoch=epoch):
            with torch.autocast(x.device.type, torch.bfloat16, enabled=settings.mixed_precision):
                loss = F.cross_entropy(network(x), t)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses[step] = loss.detach()
            step += 1
            if step % LOOK == 0 and not bool((losses[step - LOOK : step] < limit).all()):
                losses[step:] = math.inf
                return _diverged(losses, limit)
        schedule.step()
    return _diverged(losses, limit)


def minibatches(
    images: Tensor, targets: Tensor, settings: ImageTraining, *, seed: int, epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """The minibatches of one epoch, augmented."""
    order = torch.randperm(len(images), generator=stream(seed, f"order of epoch {epoch}")).to(images.device)
    augmentation = stream(seed, f"augmentation of epoch {epoch}")
    size = settings.batch_size
    for start in range(0, len(images) - size + 1, size):
        chosen = order[start : start + size]
        x = images[chosen]
        yield (augmented(x, augmentation) if settings.augment else x), targets[chosen]


def augmented(x: Tensor, generator: torch.Generator) -> Tensor:
    """Images (B, C, H, W) mirrored with probability 1/2 and shifted by up to `PADDING` pixels, zeros coming in."""
    B, _, H, W = x.shape
    mirrored = torch.rand(B, generator=generator).to(x.device) < 0.5
    top, left = torch.randint(2 * PADDING + 1, (2, B), generator=generator).to(x.device)
    x = torch.where(mirrored.view(B, 1, 1, 1), x.flip(3), x)
    padded = F.pad(x, (PADDING,) * 4).movedim(1, 3)  # (B, H', W', C)
    rows = top.view(B, 1, 1) + torch.arange(H, device=x.device).view(1, H, 1)
    columns = left.view(B, 1, 1) + torch.arange(W, device=x.device).view(1, 1, W)
    return padded[torch.arange(B, device=x.device).view(B, 1, 1), rows, columns].movedim(3, 1)  # (B, C, H, W)


def standardised(pixels: Tensor) -> Tensor:
    """Pixels (N, C, H, W) in uint8 as numbers of mean 0 and variance 1 in every channel."""
    x = pixels.float() / 255
    dims = (0, 2, 3)
    return (x - x.mean(dims, keepdim=True)) / x.std(dims, keepdim=True)


def _diverged(losses: Tensor, limit: float) -> Tensor:
    """The losses on the CPU, infinite from the first one that is undefined or beyond hope."""
    found = losses.cpu()
    lost = ~(found < limit)
    if bool(lost.any()):
        found[int(lost.nonzero()[0]) :] = math.inf
    return found
