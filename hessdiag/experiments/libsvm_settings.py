"""What `hessdiag reproduce libsvm` is asked for: which data sets, how they are trained on, and how long."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hessdiag.datasets.libsvm_catalogue import CATALOGUE, find_entry
from hessdiag.errors import HessdiagError
from hessdiag.experiments.libsvm_schemes import OTHERS, PAPER
from hessdiag.suggestions import did_you_mean
from hessdiag.training.stacked import Training
from hessdiag.training.stacked_optimizers import OPTIMIZERS

HIDDEN = (384, 64)  # the paper's
POWERS = tuple(range(1, -13, -1))  # of 2: the paper's learning rates
SEEDS = 10  # the paper's
QUICK_SETS, QUICK_POWERS, QUICK_SEEDS = ("iris", "wine", "glass"), tuple(range(1, -13, -2)), 3
MAX_DEFAULT_ENTRIES = 2_000_000  # rows times features of the data sets that are run when none is named


@dataclass(frozen=True)
class Choice:
    """A data set, and how much of it is trained on.

    Attributes:
        name: of the data set.
        max_rows: rows that are drawn from a larger one; None is no limit.
        max_features: features that are kept of a wider one, those with the most entries; None is no limit.
    """

    name: str
    max_rows: int | None = None
    max_features: int | None = None


@dataclass(frozen=True, kw_only=True)
class LibsvmSettings:
    """One grid over data sets, initialisations, learning rates and seeds.

    Attributes:
        data_dir: folder of the data; None downloads them.
        datasets: what is trained on.
        training: optimiser, batch size and epochs.
        schemes: names of initialisations.
        powers: learning rates as powers of 2, from the largest.
        seeds: how many.
        budget: minutes after which no further data set is begun; None is no limit.
    """

    data_dir: Path | None
    datasets: tuple[Choice, ...]
    training: Training
    schemes: tuple[str, ...] = PAPER + OTHERS
    powers: tuple[int, ...] = POWERS
    seeds: int = SEEDS
    budget: float | None = None


def read_options(  # noqa: PLR0913  # the options of the command
    *,
    quick: bool = False,
    data_dir: str = "",
    datasets: str = "",
    schemes: str = "",
    optimizer: str = "momentum",
    batch_size: int = 32,
    epochs: int = 5,
    budget: float | None = None,
) -> LibsvmSettings:
    """Read the options of the command.

    Raises:
        HessdiagError: there is no such data set, initialisation or optimiser.
    """
    if optimizer not in OPTIMIZERS:
        hint = did_you_mean(optimizer, OPTIMIZERS, otherwise=f"use {', '.join(OPTIMIZERS)}")
        raise HessdiagError(f"--optimizer {optimizer!r}: {hint}")
    return LibsvmSettings(
        data_dir=Path(data_dir) if data_dir else None,
        datasets=choose_datasets(datasets, quick=quick),
        training=Training(optimizer=optimizer, batch_size=batch_size, epochs=epochs),
        schemes=choose_schemes(schemes),
        powers=QUICK_POWERS if quick else POWERS,
        seeds=QUICK_SEEDS if quick else SEEDS,
        budget=budget,
    )


def choose_schemes(text: str) -> tuple[str, ...]:
    """Names separated by commas, or all for the empty text."""
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    known = (*PAPER, *OTHERS)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, otherwise=f"use {', '.join(known)}")
            raise HessdiagError(f"--schemes {text!r}: unknown initialisation {name!r}: {hint}")
    if len(set(names)) < len(names) or len(names) == 1:
        raise HessdiagError(f"--schemes {text!r}: name at least two initialisations, each once")
    return names or known


def choose_datasets(text: str, *, quick: bool) -> tuple[Choice, ...]:
    """Data sets separated by commas; `all`; or, for the empty text, the smaller ones, from the smallest.

    >>> [choice.name for choice in choose_datasets("", quick=True)]
    ['iris', 'wine', 'glass']
    >>> choose_datasets("news20:2000x500", quick=False)
    (Choice(name='news20', max_rows=2000, max_features=500),)
    """
    by_size = sorted(CATALOGUE, key=lambda name: CATALOGUE[name].rows * CATALOGUE[name].features)
    if text == "all":
        return tuple(map(Choice, by_size))
    choices = tuple(_choice(word.strip()) for word in text.split(",") if word.strip())
    if len({choice.name for choice in choices}) < len(choices):
        raise HessdiagError(f"--datasets {text!r}: name each data set once")
    small = (n for n in by_size if CATALOGUE[n].rows * CATALOGUE[n].features <= MAX_DEFAULT_ENTRIES)
    return choices or tuple(map(Choice, QUICK_SETS if quick else small))


def _choice(word: str) -> Choice:
    name, _, part = word.partition(":")
    find_entry(name)
    matched = re.fullmatch(r"(\d{1,9})(?:x(\d{1,9}))?", part)
    if part and (matched is None or "0" in matched.groups()):
        raise HessdiagError(f"--datasets {word!r}: write rows, or rows x features, as in news20:2000x500")
    rows, features = matched.groups() if matched else (None, None)
    return Choice(name, int(rows) if rows else None, int(features) if features else None)
