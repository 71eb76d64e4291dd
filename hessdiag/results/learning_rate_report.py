"""Learning rates of several optimisers for one network, and what they were measured on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from hessdiag.results.learning_rates import LearningRate
from hessdiag.results.records import Record
from hessdiag.results.rendering import Tabled

NAMES = {"sgd": "SGD", "momentum": "SGD, momentum 0.9", "adam": "Adam"}


@dataclass(frozen=True, repr=False)
class LearningRates(Tabled, Record, Mapping[str, LearningRate]):
    """A mapping from optimisers to their learning rates; printing it shows the table.

    Attributes:
        rates: by optimiser: `"sgd"`, `"momentum"` (SGD with momentum 0.9) or `"adam"`.
        model: name of its class, or what was typed.
        loss: name of the loss.
        data: what the examples are, such as `"random normal"`; empty where they were passed.
        init: what the weights are.
        batch_size: examples in the batch of a virtual step.
        fresh: whether slopes and curvatures are of other examples than the directions.
        seed: of what was drawn.
        device, dtype: where and in what precision.
        versions: of hessdiag and torch.
    """

    schema: ClassVar[str] = "hessdiag.learning-rates/1"

    rates: Mapping[str, LearningRate]
    model: str
    loss: str
    data: str = ""
    init: str = "as given"
    batch_size: int = 0
    fresh: bool = True
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def random_data(self) -> bool:
        """Whether the examples were drawn at random, so that the rates are not those of anyone's data."""
        return self.data.startswith("random")

    def __getitem__(self, optimizer: str) -> LearningRate:
        """The rate of an optimiser."""
        return self.rates[optimizer]

    def __iter__(self) -> Iterator[str]:
        """The optimisers."""
        return iter(self.rates)

    def __len__(self) -> int:
        """How many."""
        return len(self.rates)
