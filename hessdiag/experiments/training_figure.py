"""What the figures of training curves have in common: settings, data, the sweep, and how it is drawn and summed up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from hessdiag.datasets.cifar10 import Images, load_cifar10
from hessdiag.execution.work import Work
from hessdiag.experiments.figure import Figure
from hessdiag.experiments.learning_rate_sweep import Build, Sweep, curves_of
from hessdiag.results.training_curves import TrainingCurves


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What is trained, and on how much.

    Attributes:
        sweep: learning rates, seeds and how to train.
        images: of the training part that are used.
        side: of them, in pixels.
        width: factor on all hidden layers or channels.
        data_dir: folder of the data; None downloads it.
    """

    sweep: Sweep
    images: int
    width: float
    data_dir: Path | None
    side: int = 32


@dataclass(frozen=True, kw_only=True)
class TrainingStudy:
    """Networks that are trained on CIFAR-10, each at the best of a sweep of learning rates.

    Attributes:
        name, title: of the figure.
        names: of the networks, or of their initialisations.
        reference: the one that the others are compared with.
        read_options: settings from the options of the command.
        choose_images: standardised images and targets that are used, from the whole data.
        build: from the settings, the first images and the device to what builds each network from a seed.
        model: the network in words.
        data, training: what is added to the words on the data and the training.
    """

    name: str
    title: str
    names: tuple[str, ...]
    reference: str
    read_options: Callable[..., TrainingSettings]
    choose_images: Callable[[Images, TrainingSettings], tuple[Tensor, Tensor]]
    build: Callable[[TrainingSettings, Tensor, str], Mapping[str, Build]]
    model: str
    data: Callable[[TrainingSettings], str]
    training: str

    def steps(self, *, quick: bool, **options: Any) -> int:
        """Count the units of work before any sweep is widened."""
        return len(self.names) * self.read_options(quick=quick, **options).sweep.units

    def measure(
        self, *, quick: bool = False, seed: int = 0, device: str = "cpu", work: Work, **options: Any
    ) -> TrainingCurves:
        """Train all networks."""
        settings = self.read_options(quick=quick, **options)
        training, window = settings.sweep.training, settings.sweep.window
        images, targets = self.choose_images(load_cifar10(data_dir=settings.data_dir, device=device), settings)
        builds = self.build(settings, images[: training.batch_size], device)
        data, model = f"{len(images)} images{self.data(settings)}", f"{self.model}, width {settings.width:g}"
        how = f"{data}, width {settings.width:g}, {replace(training, rate=0.0)}"
        ends, sets = curves_of(builds, images, targets, settings.sweep, seed=seed, work=work.within(how))
        return TrainingCurves(
            model=model,
            data=f"CIFAR-10, {data}",
            training=(
                f"SGD with momentum 0.9, weight decay {training.weight_decay:g}, batch {training.batch_size},"
                f" {training.epochs} epochs, {self.training}"
            ),
            window=min(window, int(ends[-1])),
            steps=ends,
            sets=sets,
        )

    def draw(self, measured: TrainingCurves) -> Any:
        """Draw the curves."""
        from hessdiag.plots import draw_training_curves

        return draw_training_curves(measured, title=self.title)

    def summary(self, measured: TrainingCurves) -> list[str]:
        """Write the final losses, and how sure the differences from the reference are."""
        from hessdiag.tables.training_curves_table import render_curves

        return render_curves(measured, reference=self.reference).split("\n")

    def figure(self) -> Figure[TrainingCurves]:
        """Return it as a figure of the catalogue."""
        return Figure(
            name=self.name,
            steps=self.steps,
            measure=self.measure,
            write=TrainingCurves.to_json,
            read=TrainingCurves.from_json,
            draw=self.draw,
            summary=self.summary,
        )
