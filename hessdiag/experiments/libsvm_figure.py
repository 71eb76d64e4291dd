"""Table 2 of arXiv 1906.04267: training losses of initialisations on LIBSVM's multi-class data sets.

Networks of three layers (hidden widths 384 and 64) with ReLU and biases, LayerNorm without parameters on the input, and
logits scaled to a standard deviation of 0.05 on the first minibatch; five epochs, learning rates 2^1 … 2^-12, ten
seeds. The paper names neither optimiser nor batch size, and does not say of what the loss is: here it is the mean over
all training examples after the last epoch.
"""

from __future__ import annotations

import time
from typing import Any

from hessdiag.datasets.dataset import Dataset
from hessdiag.datasets.libsvm import load_libsvm
from hessdiag.errors import HessdiagError
from hessdiag.execution.work import Work
from hessdiag.experiments.figure import Figure
from hessdiag.experiments.libsvm_balance import NETWORKS, measure_balance
from hessdiag.experiments.libsvm_grid import as_array, run_grid
from hessdiag.experiments.libsvm_schemes import PAPER
from hessdiag.experiments.libsvm_settings import HIDDEN, Choice, LibsvmSettings, read_options
from hessdiag.results.training_study import DatasetLosses, TrainingStudy


def steps(*, quick: bool, **options: Any) -> int:
    """Count the units of work before any grid is widened."""
    settings = read_options(quick=quick, **options)
    networks = settings.seeds + min(NETWORKS, settings.seeds)
    return len(settings.datasets) * len(settings.schemes) * networks


def measure(*, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work, **options: Any) -> TrainingStudy:
    """Train on one data set after the other, until all are done or the time is over."""
    settings = read_options(quick=quick, **options)
    began = time.monotonic()
    blocks: list[DatasetLosses] = []
    for place, choice in enumerate(settings.datasets):
        over = settings.budget is not None and time.monotonic() - began > 60 * settings.budget
        if any(work.ranks.gather(over)):  # ranks need not agree on the time
            if not blocks:
                raise HessdiagError(f"--budget {settings.budget:g}: no data set was begun in time, pass more minutes")
            return _study(settings, blocks, left_out=tuple(choice.name for choice in settings.datasets[place:]))
        blocks.append(measure_dataset(load(choice, settings), settings, seed=seed, device=device, work=work))
    return _study(settings, blocks)


def load(choice: Choice, settings: LibsvmSettings) -> Dataset:
    """Load a data set, cut to the rows and features that are asked for."""
    found = load_libsvm(choice.name, data_dir=settings.data_dir)
    if choice.max_features is not None:
        found = found.most_frequent(choice.max_features)
    return found if choice.max_rows is None else found.subset(choice.max_rows)


def measure_dataset(dataset: Dataset, settings: LibsvmSettings, *, seed: int, device: str, work: Work) -> DatasetLosses:
    """Train the grid of one data set, and measure how balanced its networks were at the start."""
    training = settings.training
    how = f"{training.optimizer} batch {training.batch_size} epochs {training.epochs}"
    own = work.within(f"{dataset.name} {dataset.digest()} {how}")
    balance = measure_balance(dataset, settings, seed=seed, device=device, work=own)
    powers, losses = as_array(run_grid(dataset, settings, seed=seed, device=device, work=own))
    return DatasetLosses(
        name=dataset.name,
        rows=len(dataset),
        features=dataset.features,
        classes=dataset.classes,
        note=dataset.note,
        powers=powers,
        losses=losses,
        sigma_spread=balance.sigma_spread,
        gamma_spread=balance.gamma_spread,
        predicted_rate=balance.predicted_rate,
    )


def _study(settings: LibsvmSettings, blocks: list[DatasetLosses], *, left_out: tuple[str, ...] = ()) -> TrainingStudy:
    return TrainingStudy(
        optimizer=settings.training.optimizer,
        batch_size=settings.training.batch_size,
        epochs=settings.training.epochs,
        weight_decay=settings.training.weight_decay,
        logit_std=settings.training.logit_std or 0.0,
        hidden=HIDDEN,
        schemes=settings.schemes,
        powers=settings.powers,
        blocks=tuple(blocks),
        left_out=left_out,
    )


def draw(study: TrainingStudy) -> Any:
    """Draw the losses by data set, and against the balance at the start."""
    from hessdiag.plots import draw_scheme_losses

    return draw_scheme_losses(study, PAPER)


def summary(study: TrainingStudy) -> list[str]:
    """Write the paper's Table 2, and what is behind it."""
    from hessdiag.tables.scheme_ranking_table import render_ranking

    return render_ranking(study, PAPER).split("\n")


FIGURE = Figure(
    name="libsvm",
    steps=steps,
    measure=measure,
    write=TrainingStudy.to_json,
    read=TrainingStudy.from_json,
    draw=draw,
    summary=summary,
)
