"""A stranger's network: its model, its call of `hessdiag.diagnose`, its training step, and one planted fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor, nn

from strangers.split import SOURCES, Blind, Part, half


@dataclass(frozen=True)
class Task:
    """What a stranger has at hand.

    Attributes:
        model: just built, in training mode.
        arguments: of `hessdiag.diagnose` after the model.
        loss: of one training step, as the author computes it.
        options: keyword arguments of `hessdiag.diagnose`.
    """

    model: nn.Module
    arguments: tuple[Any, ...]
    loss: Callable[[], Tensor]
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Stranger:
    """A network and its twin with one fault.

    Attributes:
        name: of the architecture.
        convention: what its author does otherwise than a chain of layers with a loss beside it.
        fault: planted in the twin, in words.
        guilty: pattern of the names of guilty parameters.
        says: pattern of what a finding says where no parameter is guilty.
        task: makes the network, or its twin.
        source: repository, site or author that it is after: see `strangers.split`.
        blind: which of the later sets that were written apart it is of, if any.
    """

    name: str
    convention: str
    fault: str
    guilty: str
    says: str
    task: Callable[[bool], Task]
    source: str = ""
    blind: Blind | Literal[""] = ""

    @property
    def part(self) -> Part:
        return self.blind or half(self.source)


STRANGERS: dict[str, Stranger] = {}


def stranger(
    name: str, convention: str, *, fault: str, guilty: str = r"(?!)", says: str = r"(?!)"
) -> Callable[[Callable[[bool], Task]], Callable[[bool], Task]]:
    """Enter what the function makes among `STRANGERS`; it is told whether to plant the fault."""

    def enter(task: Callable[[bool], Task]) -> Callable[[bool], Task]:
        assert name not in STRANGERS, name
        STRANGERS[name] = Stranger(name, convention, fault, guilty, says, task, SOURCES[name])
        return task

    return enter


def report(
    name: str,
    source: str,
    *,
    fault: str = "",
    guilty: str = r"(?!)",
    says: str = r"(?!)",
    blind: Blind | Literal[""] = "",
) -> Callable[[Callable[[bool], Task]], Callable[[bool], Task]]:
    """Enter a case out of a public report; without a fault, a healthy network that looks odd."""

    def enter(task: Callable[[bool], Task]) -> Callable[[bool], Task]:
        assert name not in STRANGERS, name
        STRANGERS[name] = Stranger(name, "", fault, guilty, says, task, source, blind)
        return task

    return enter


healthy = report
