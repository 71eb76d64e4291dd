"""The figures by name, with their cost. Nothing here imports torch before a figure is asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
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
        options: of the command that only some figures have, as keyword arguments of `steps` and `measure`.
        part: what it is called among the parts of its name, of which it is the first and the default; empty if alone.
        others: further parts, by name, which are figures of their own.
        small: its set-ups take so little that each core measures its own, if nothing else is asked for.
    """

    module: str
    shows: str
    cost: str
    options: tuple[str, ...] = ()
    part: str = ""
    others: Mapping[str, Entry] = field(default_factory=dict)
    small: bool = False

    @property
    def parts(self) -> Mapping[str, Entry]:
        """All parts by name; none of a figure that has no parts."""
        return {self.part: self, **self.others} if self.part else {}


CATALOGUE = {
    "ratios": Entry(
        "ratio_figure",
        "Figure 1: histograms of γ/σ² of every block of the strided LeNet, 100 set-ups",
        "under a minute",
        small=True,
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
        part="conditioning",
        others={
            "cifar": Entry(
                "resnet_cifar",
                "four kinds of ResNet-14 trained on CIFAR-10; a GPU, or minutes with --quick",
                "days",
                options=("data_dir", "epochs", "batch_size", "seeds", "mixed_precision"),
            ),
            "training": Entry(
                "resnet_training",
                "ResNet-50 without normalisation trained on ImageNet, in --data-dir; many GPUs",
                "weeks",
                options=(
                    "out",
                    "data_dir",
                    "networks",
                    "epochs",
                    "batch_size",
                    "seeds",
                    "mixed_precision",
                    "workers",
                ),
            ),
        },
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


def titled_entries() -> Iterator[tuple[str, Entry]]:
    """Every figure with what is typed to ask for it."""
    for name, entry in CATALOGUE.items():
        yield name, entry
        for part, other in entry.others.items():
            yield f"{name} --part {part}", other


def check_options(name: str, options: Iterable[str], *, part: str = "") -> None:
    """Refuse options that a figure does not have.

    Raises:
        HessdiagError: with the figures that have it.
    """
    entry = find_entry(name, part=part)
    for option in options:
        if option not in entry.options:
            owners = ", ".join(title for title, other in titled_entries() if option in other.options)
            raise HessdiagError(f"--{option.replace('_', '-')} is an option of {owners}: leave it out for {name}")


def find_entry(name: str, *, part: str = "") -> Entry:
    """Find a figure or a part of one.

    Raises:
        HessdiagError: there is none, or it has no such part.
    """
    if name not in CATALOGUE:
        names = ", ".join(CATALOGUE)
        raise HessdiagError(f"unknown figure {name!r}: {did_you_mean(name, CATALOGUE, otherwise=f'use {names}')}")
    parts = CATALOGUE[name].parts
    if part and part not in parts:
        known = " or ".join(parts)
        raise HessdiagError(f"--part {part!r}: " + (f"use {known}" if known else f"{name} has no parts, leave it out"))
    return parts[part] if part else CATALOGUE[name]


def find_figure(name: str, *, part: str = "") -> Figure[Any]:
    """Import the figure of that name, or a part of it.

    Raises:
        HessdiagError: there is none, or it has no such part.
    """
    entry = find_entry(name, part=part)
    figure: Figure[Any] = import_module(f"hessdiag.experiments.{entry.module}").FIGURE
    return figure
