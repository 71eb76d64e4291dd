"""Train one network on a folder of images, by one process or several (DistributedDataParallel).

Everything random follows from the seed, the epoch and the number of the image, and not from the process: several
processes train on the same minibatches, crops and dropout masks as one. Batch normalisation alone makes a difference,
as usual: it normalises each process's share by itself.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from hessdiag.datasets.image_crops import CentreCrops
from hessdiag.datasets.image_folder import ImageSplit
from hessdiag.errors import HessdiagError
from hessdiag.execution.ranks import ALONE, Ranks, noticing_death
from hessdiag.models.channel_bias import centre
from hessdiag.results.training_runs import Epoch
from hessdiag.training.shared_dropout import SharedDropout, draw_masks, share_dropout
from hessdiag.training.shared_minibatches import Minibatches, load, training_minibatches, validation_minibatches
from hessdiag.training.training_state import load_state, save_state

MOMENTUM = 0.9
Batches = Iterable[tuple[Tensor, Tensor]]


@dataclass(frozen=True, kw_only=True)
class DistributedTraining:
    """How a network is trained; the defaults are the paper's.

    Attributes:
        epochs: the rate is divided by ten after each third of them.
        batch_size: of all processes together.
        rate: learning rate of SGD with momentum 0.9.
        weight_decay: λ of the added gradient λ W.
        side: of the images, in pixels.
        mixed_precision: compute in bfloat16 where that is safe.
    """

    epochs: int = 90
    batch_size: int = 256
    rate: float = 0.1
    weight_decay: float = 1e-4
    side: int = 224
    mixed_precision: bool = False

    def rate_of(self, epoch: int) -> float:
        """Learning rate of an epoch, from 0.

        >>> [DistributedTraining().rate_of(epoch) for epoch in (0, 29, 30, 60, 89)]
        [0.1, 0.1, 0.01, 0.001, 0.001]
        """
        return self.rate / 10.0 ** (3 * epoch // self.epochs)


@dataclass(frozen=True)
class Place:
    """Where a training runs.

    Attributes:
        device: of this process.
        ranks: the processes that share every minibatch.
        workers: processes that decode images for this one; 0 decodes them here.
        state: file that keeps weights and momenta of the last epoch; None keeps none.
    """

    device: str = "cpu"
    ranks: Ranks = ALONE
    workers: int = 0
    state: Path | None = None


def train_distributed(
    network: nn.Module,
    data: ImageSplit,
    settings: DistributedTraining,
    *,
    seed: int,
    place: Place,
    after_epoch: Callable[[list[Epoch]], object] = lambda epochs: None,
) -> list[Epoch]:
    """Train in place, from the state that is kept if there is one; a network that diverges is given up.

    Args:
        network: as initialised; biases that are layers of their own are centred here.
        data: what on.
        settings: how.
        seed: of order, crops and dropout.
        place: where.
        after_epoch: called on every rank with all epochs so far, also with those that were kept.

    Raises:
        HessdiagError: images cannot be read, or do not suffice; the state is damaged, or of another training.
    """
    check_batch_size(settings.batch_size, images=len(data.train), ranks=place.ranks)
    device = torch.device(place.device)
    dropout = share_dropout(network)
    network.to(device)
    optimizer = torch.optim.SGD(
        network.parameters(), lr=settings.rate, momentum=MOMENTUM, weight_decay=settings.weight_decay
    )
    identity = _identity(network, data, settings, seed=seed)
    epochs = load_state(place.state, network, optimizer, identity, ranks=place.ranks) if place.state else []
    if epochs:
        after_epoch(epochs)
    elif place.ranks.rank == 0:  # the others are given its biases
        centre_on(network, data, settings, seed=seed, device=device)
    shared = _Trained(network, _parallel(network, place), optimizer, dropout)
    with _repeatable():
        for number in range(len(epochs), settings.epochs):
            epochs.append(_epoch(shared, data, settings, number, seed=seed, place=place))
            if not math.isfinite(epochs[-1].train_loss):
                epochs += [Epoch(number=n + 1, rate=settings.rate_of(n)) for n in range(number + 1, settings.epochs)]
            if place.state and place.ranks.rank == 0:
                save_state(place.state, network, optimizer, epochs, identity)
            after_epoch(epochs)
            if len(epochs) == settings.epochs:
                break
    return epochs


def check_batch_size(batch_size: int, *, images: int, ranks: Ranks) -> None:
    """Refuse a minibatch that cannot be filled, or shared out evenly.

    Raises:
        HessdiagError: with the largest that can.
    """
    if batch_size > images:
        raise HessdiagError(f"--batch-size {batch_size}: there are only {images} training images, pass less")
    if batch_size % ranks.size:
        raise HessdiagError(f"--batch-size {batch_size}: {ranks.size} processes share it, pass a multiple of that")


def centre_on(
    network: nn.Module, data: ImageSplit, settings: DistributedTraining, *, seed: int, device: torch.device
) -> None:
    """Centre the biases on the images of the first minibatch, cropped as for validation."""
    side, size = settings.side, settings.batch_size
    order = training_minibatches(data.train, side=side, batch_size=size, seed=seed, epoch=0, ranks=ALONE).chosen
    network.eval()
    for x, _ in load(Minibatches(data.train, order[:1], CentreCrops(side)), workers=0, device=device):
        centre(network, x)


@dataclass(frozen=True)
class _Trained:
    """A network, its copy of many processes, its optimiser and its dropout."""

    network: nn.Module
    parallel: nn.Module
    optimizer: torch.optim.Optimizer
    dropout: list[SharedDropout]


def _epoch(
    trained: _Trained, data: ImageSplit, settings: DistributedTraining, number: int, *, seed: int, place: Place
) -> Epoch:
    device = torch.device(place.device)
    for group in trained.optimizer.param_groups:
        group["lr"] = settings.rate_of(number)
    minibatches = training_minibatches(
        data.train, side=settings.side, batch_size=settings.batch_size, seed=seed, epoch=number, ranks=place.ranks
    )
    started = time.perf_counter()
    first = number * len(minibatches)
    batches = load(minibatches, workers=place.workers, device=device)
    train_loss, train_accuracy = _steps(trained, batches, settings, seed=seed, first=first, ranks=place.ranks)
    seconds = time.perf_counter() - started
    share = settings.batch_size // place.ranks.size
    _share_buffers(trained.network, place.ranks)
    held_out = validation_minibatches(data.validation, side=settings.side, batch_size=share, ranks=place.ranks)
    loss, accuracy = evaluate(
        trained.network, load(held_out, workers=place.workers, device=device), settings, ranks=place.ranks
    )
    return Epoch(
        number=number + 1,
        rate=settings.rate_of(number),
        train_loss=train_loss,
        train_accuracy=train_accuracy,
        validation_loss=loss,
        validation_accuracy=accuracy,
        images_per_second=len(minibatches) * settings.batch_size / seconds,
    )


def _steps(
    trained: _Trained, batches: Batches, settings: DistributedTraining, *, seed: int, first: int, ranks: Ranks
) -> tuple[float, float]:
    """Loss and accuracy in training, means over an epoch."""
    trained.parallel.train()
    seen = _Seen()
    for step, (x, t) in enumerate(batches, start=first):
        draw_masks(trained.dropout, seed=seed, step=step, ranks=ranks)
        with noticing_death() if ranks.size > 1 else nullcontext():  # gradients are averaged on the way back
            y, loss = _step(trained, x, t, settings)
        seen.add(y, t, loss * len(t))
    return seen.means(ranks)


def _step(trained: _Trained, x: Tensor, t: Tensor, settings: DistributedTraining) -> tuple[Tensor, Tensor]:
    with torch.autocast(x.device.type, torch.bfloat16, enabled=settings.mixed_precision):
        y = trained.parallel(x)
    loss = F.cross_entropy(y.float(), t)
    trained.optimizer.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    trained.optimizer.step()
    return y.detach(), loss.detach()


def evaluate(
    network: nn.Module, batches: Batches, settings: DistributedTraining, *, ranks: Ranks = ALONE
) -> tuple[float, float]:
    """Mean loss and accuracy over the batches of all ranks, of the network in evaluation mode."""
    network.eval()
    seen = _Seen()
    with torch.no_grad():
        for x, t in batches:
            with torch.autocast(x.device.type, torch.bfloat16, enabled=settings.mixed_precision):
                y = network(x)
            seen.add(y, t, F.cross_entropy(y.float(), t, reduction="sum"))
    return seen.means(ranks)


class _Seen:
    """Sums over examples, kept on the device so that no step waits for it."""

    def __init__(self) -> None:
        self.count = 0
        self.sums: Tensor | float = 0.0

    def add(self, y: Tensor, t: Tensor, loss: Tensor) -> None:
        """Add the examples of a batch, whose losses sum up to `loss`."""
        self.count += len(t)
        self.sums = self.sums + torch.stack([loss.double(), (y.argmax(dim=1) == t).sum().double()])

    def means(self, ranks: Ranks) -> tuple[float, float]:
        """Loss and accuracy over the examples of all ranks."""
        mine = self.sums.tolist() if isinstance(self.sums, Tensor) else [0.0, 0.0]
        loss, correct, count = (sum(column) for column in zip(*ranks.gather((*mine, self.count)), strict=True))
        return loss / count, correct / count


def _parallel(network: nn.Module, place: Place) -> nn.Module:
    if place.ranks.size == 1:
        return network
    return DistributedDataParallel(network, [torch.cuda.current_device()] if place.device == "cuda" else None)


def _share_buffers(network: nn.Module, ranks: Ranks) -> None:
    """Give every process the running statistics of the first, which are the ones that are kept."""
    if ranks.size > 1:
        with noticing_death():
            for buffer in network.buffers():
                dist.broadcast(buffer, src=0)


def _identity(network: nn.Module, data: ImageSplit, settings: DistributedTraining, *, seed: int) -> dict[str, str]:
    """What a state must agree with to be resumed."""
    network_words = f"{type(network).__name__}, {sum(p.numel() for p in network.parameters())} parameters"
    values: dict[str, Any] = {"network": network_words, "data": data.digest(), "seed": seed, **asdict(settings)}
    return {key.replace("_", " "): str(value) for key, value in values.items()}


@contextmanager
def _repeatable() -> Iterator[None]:
    """Let cuDNN choose algorithms that give the same sums every time."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=True):
        yield
