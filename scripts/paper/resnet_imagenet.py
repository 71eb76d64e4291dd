"""The training of Section 11.2 of arXiv 1906.04267: residual networks without normalisation, on ImageNet.

    torchrun --nproc-per-node 8 scripts/paper/resnet_imagenet.py --data ~/imagenet --mixed-precision
    python scripts/paper/resnet_imagenet.py --data few-images --quick

The folder has train/CLASS/*.jpg and val/CLASS/*.jpg; torchvision reads it. As the paper says: 90 epochs of batches of
256 by SGD with momentum 0.9 and weight decay 1e-4, the rate 0.1 divided by ten after epochs 30 and 60, dropout before
the last layer. It does not give the rate of the dropout: 0.25 here, as in RescaleNet's code. Biases are centred on the
first minibatch. Batch normalisation is compared with as well. A finished training is a line of
OUT/resnet-training.runs.jsonl and is skipped when the script is started again; one that is killed starts anew.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import study
import torch
import torch.distributed as dist
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from standard_resnet import ResNet
from study import array
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from hessdiag.models import PreconditionedResNet, RescaleNet
from hessdiag.models.residual import centre

NETWORKS: Mapping[str, Callable[..., nn.Module]] = {
    "preconditioned": PreconditionedResNet,
    "rescalenet": RescaleNet,
    "batch-norm": ResNet,
    "preconditioned-sigma": partial(PreconditionedResNet, curvature=True),  # c = β²: σ² is levelled in place of γ
}
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's red, green and blue
COLUMNS = (
    "epoch",
    "rate",
    "train_loss",
    "train_accuracy",
    "validation_loss",
    "validation_accuracy",
    "images_per_second",
)


def folders(asked: Any, side: int) -> tuple[Any, Any]:
    """Open the training and the validation part, with the standard crops."""
    try:
        from torchvision import datasets
        from torchvision.transforms import v2
    except ModuleNotFoundError:
        raise SystemExit("resnet_imagenet.py reads images with torchvision: pip install torchvision") from None
    if not asked.data or not (asked.data / "train").is_dir() or not (asked.data / "val").is_dir():
        raise SystemExit("--data DIR: a folder with train/CLASS/*.jpg and val/CLASS/*.jpg")
    tail = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)]
    crops = [v2.RandomResizedCrop(side), v2.RandomHorizontalFlip()]
    centres = [v2.Resize(round(side * 256 / 224)), v2.CenterCrop(side)]
    train = datasets.ImageFolder(asked.data / "train", v2.Compose([*crops, *tail]))
    return train, datasets.ImageFolder(asked.data / "val", v2.Compose([*centres, *tail]))


def passes(model: nn.Module, loader: Any, asked: Any, optimizer: Any = None) -> tuple[float, float]:
    """Go once through the data, and train with an optimiser: mean loss and accuracy over all processes."""
    model.train(optimizer is not None)
    sums = torch.zeros(3, dtype=torch.float64, device=asked.device)  # loss, correct, examples
    for x, t in loader:
        x, t = x.to(asked.device, non_blocking=True), t.to(asked.device, non_blocking=True)
        with torch.set_grad_enabled(optimizer is not None):
            with torch.autocast(torch.device(asked.device).type, torch.bfloat16, enabled=asked.mixed_precision):
                y = model(x)
            loss = F.cross_entropy(y.float(), t)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        correct = (y.argmax(dim=1) == t).sum()
        sums += torch.stack([loss.detach().double() * len(t), correct.double(), correct.new_tensor(len(t)).double()])
    if dist.is_initialized():
        dist.all_reduce(sums)
    return float(sums[0] / sums[2]), float(sums[1] / sums[2])


def train(name: str, seed: int, depth: int, side: int, asked: Any) -> list[list[float]]:
    """Train a network; return one row of `COLUMNS` an epoch."""
    data, held_out = folders(asked, side)
    world = dist.get_world_size() if dist.is_initialized() else 1
    if asked.batch_size % world or asked.batch_size > len(data):
        raise SystemExit(f"--batch-size {asked.batch_size}: {world} processes share it, of {len(data)} images")
    with study.seeded(seed, f"initialisation of {name}"):
        network = NETWORKS[name](depth, len(data.classes), side).to(asked.device)
    torch.manual_seed(study.stream(seed, f"crops and dropout of process {rank()}").initial_seed())
    loaders = []
    for part, training in ((data, True), (held_out, False)):
        sampler: Any = DistributedSampler(part, world, rank(), shuffle=training, seed=seed, drop_last=training)
        share = asked.batch_size // world
        loaders.append(DataLoader(part, share, sampler=sampler, num_workers=asked.workers, drop_last=training))
    first: Tensor = next(iter(loaders[0]))[0].to(asked.device)
    network.eval()
    centre(network, first)  # DistributedDataParallel gives all processes the biases of the first
    model: nn.Module = DistributedDataParallel(network) if world > 1 else network
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    rows: list[list[float]] = []
    for epoch in range(asked.epochs):
        rate = 0.1 / 10.0 ** (3 * epoch // asked.epochs)
        optimizer.param_groups[0]["lr"] = rate
        loaders[0].sampler.set_epoch(epoch)
        began = time.perf_counter()
        trained = passes(model, loaders[0], asked, optimizer)
        seconds = time.perf_counter() - began
        rows.append([epoch + 1, rate, *trained, *passes(network, loaders[1], asked),
                     len(loaders[0]) * asked.batch_size / seconds])  # fmt: skip
        if rank() == 0:
            print(name, seed, *(f"{key} {value:.4g}" for key, value in zip(COLUMNS, rows[-1], strict=True)), flush=True)
        if not math.isfinite(trained[0]):
            return rows + [[n + 1, *[math.nan] * 6] for n in range(epoch + 1, asked.epochs)]
    if rank() == 0:
        torch.save(network.state_dict(), asked.out / f"resnet-training-{name}-seed{seed}.pt")
    return rows


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def measure(asked: Any) -> dict[str, Any]:
    depth, side = (14, 32) if asked.quick else (50, 224)
    asked.epochs = asked.epochs or (3 if asked.quick else 90)
    asked.batch_size = asked.batch_size or (8 if asked.quick else 256)
    names, seeds = asked.networks.split(","), range(asked.seed, asked.seed + (asked.seeds or (1 if asked.quick else 5)))
    if unknown := set(names) - set(NETWORKS):
        raise SystemExit(f"--networks {unknown.pop()!r}: use {', '.join(NETWORKS)}")
    training = f"depth {depth}, {side} pixels, SGD, batch {asked.batch_size}, {asked.epochs} epochs"
    runs = study.Runs(asked.out / "resnet-training.runs.jsonl" if rank() == 0 else Path(os.devnull))
    if dist.is_initialized():  # all processes skip what the first one has finished
        done = [runs.found]
        dist.broadcast_object_list(done)
        runs.found = done[0]
    found = [
        {"name": name, "seed": seed,
         "epochs": runs(f"{training} {name} seed {seed}", partial(train, name, seed, depth, side, asked))}
        for seed in seeds for name in names
    ]  # fmt: skip
    return {"schema": "hessdiag.training-runs/2", "training": training, "columns": COLUMNS, "runs": found}


def values(found: dict[str, Any], name: str, column: str) -> np.ndarray:
    """Return one column of all epochs of a network, (seeds, epochs)."""
    return array([run["epochs"] for run in found["runs"] if run["name"] == name])[..., COLUMNS.index(column)]


def summary(found: dict[str, Any]) -> str:
    """Write the top-1 accuracy on the validation images after the last epoch, over seeds."""
    rows = []
    for name in dict.fromkeys(run["name"] for run in found["runs"]):
        accuracy = values(found, name, "validation_accuracy")[:, -1]
        known = 100 * accuracy[np.isfinite(accuracy)]
        error = f"{known.std(ddof=1) / len(known) ** 0.5:.2f}" if len(known) > 1 else ""
        mean = f"{known.mean():.2f} %" if len(known) else ""
        rows.append([name, f"{len(known)}/{len(accuracy)}", mean, error,
                     f"{values(found, name, 'train_loss')[:, -1].mean():.3g}"])  # fmt: skip
    return f"{found['training']}\n\n" + study.table(("", "finite", "accuracy", "stderr", "training loss"), rows)


def draw(found: dict[str, Any]) -> Figure:
    """Draw accuracy and loss by epoch: the mean over seeds, and every seed thin."""
    names = list(dict.fromkeys(run["name"] for run in found["runs"]))
    title = "Residual networks with and without normalisation"
    with study.picture(title, found["training"]) as (figure, axes):
        for panel, (column, label) in zip(axes, (("validation_accuracy", "top-1 accuracy, validation"),
                                                 ("train_loss", "training loss")), strict=True):  # fmt: skip
            for name, colour in zip(names, study.COLOURS, strict=False):
                each = values(found, name, column)
                panel.plot(np.arange(1, each.shape[1] + 1), each.T, color=colour, linewidth=0.6, alpha=0.4)
                panel.plot(np.arange(1, each.shape[1] + 1), each.mean(axis=0), color=colour, linewidth=1.6)
            panel.set(xlabel="epoch", ylabel=label)
        marks = [Line2D([], [], color=c, label=name) for name, c in zip(names, study.COLOURS, strict=False)]
        figure.legend(handles=marks, loc="outside upper right", ncols=len(names))
    return figure


def main() -> None:
    asked = study.options(
        __doc__, data={"type": Path}, networks={"default": "preconditioned,rescalenet,batch-norm"},
        epochs={"type": int}, batch_size={"type": int, "help": "of all processes together"}, seeds={"type": int},
        workers={"type": int, "default": 0, "help": "processes that decode images, for each one that trains"},
        mixed_precision={"action": "store_true"},
    )  # fmt: skip
    if "LOCAL_RANK" in os.environ:
        if asked.device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if asked.device == "cuda" else "gloo")
    if rank() > 0:
        measure(asked)
    else:
        study.main("resnet-training", asked, lambda: measure(asked), summary, draw)
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
