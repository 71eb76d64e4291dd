"""The figures by name, with their cost. Nothing here imports torch before a figure is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from hessdiag.errors import HessdiagError
from hessdiag.experiments.figure import Figure
from hessdiag.suggestions import did_you_mean


@dataclass(frozen=True)
class Entry:
    """One figure before it is imported.

    Attributes:
        module: where its `FIGURE` is, in this folder.
        shows: what it shows.
        cost: how long it takes on 2 cores.
        parts: of which only some may be asked for; the first is the default.
        options: of the command that only some figures have, as keyword arguments of `steps` and `measure`.
    """

    module: str
    shows: str
    cost: str
    parts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


CATALOGUE = {
    "ratios": Entry(
        "ratio_figure",
        "Figure 1: histograms of γ/σ² of every block of the strided LeNet, 100 set-ups",
        "under a minute",
    ),
    "heatmaps": Entry(
        "heatmap_figure",
        "Figure 2: Hessian and Gauss-Newton block maps of the strided LeNet, four initialisations",
        "half an hour",
    ),
    "layers": Entry(
        "operation_figure",
        "Table 1: what each operation does to ς, on 200 random networks a setting",
        "half a minute",
    ),
    "resnet": Entry(
        "resnet_figure",
        "Section 11: conditioning of three kinds of ResNet-50 at initialisation; ResNet-14 with --quick",
        "half an hour",
        parts=("conditioning",),
    ),
    "libsvm": Entry(
        "libsvm_figure",
        "Table 2: training losses of initialisations on LIBSVM's data sets; --data-dir or a download",
        "an hour",
        options=("data_dir", "datasets", "schemes", "optimizer", "batch_size", "epochs", "budget"),
    ),
    "alexnet": Entry(
        "alexnet_figure",
        "Section 10: training loss of the strided AlexNet on CIFAR-10; a GPU, or minutes with --quick",
        "days",
        options=("data_dir", "epochs", "batch_size", "seeds", "mixed_precision"),
    ),
}


def check_options(name: str, options: Iterable[str]) -> None:
    """Refuse options that a figure does not have.

    Raises:
        HessdiagError: with the figures that have it.
    """
    for option in options:
        if option not in CATALOGUE[name].options:
            owners = " and ".join(other for other, entry in CATALOGUE.items() if option in entry.options)
            raise HessdiagError(f"--{option.replace('_', '-')} is an option of {owners}: leave it out for {name}")


def find_figure(name: str, *, part: str = "") -> Figure[Any]:
    """Import the figure of that name.

    Raises:
        HessdiagError: there is none, or it has no such part.
    """
    if name not in CATALOGUE:
        names = ", ".join(CATALOGUE)
        raise HessdiagError(f"unknown figure {name!r}: {did_you_mean(name, CATALOGUE, otherwise=f'use {names}')}")
    entry = CATALOGUE[name]
    if part and part not in entry.parts:
        known = " or ".join(entry.parts)
        raise HessdiagError(f"--part {part!r}: " + (f"use {known}" if known else f"{name} has no parts, leave it out"))
    figure: Figure[Any] = import_module(f"hessdiag.experiments.{entry.module}").FIGURE
    return figure
