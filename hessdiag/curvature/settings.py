"""The settings of a measurement: what its numbers depend on beside model, data and loss."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import cast

from hessdiag.arguments import check_number, check_whole
from hessdiag.curvature.batch_cost import Limits, batch_cost, pairs_fit
from hessdiag.curvature.plan import MATRICES, METHODS, VIEWS, Plan, check_choice, plan
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import Matrix
from hessdiag.network.shapes import NetworkShape

UNITS = "6"  # version of what units of work hold: files of another one are refused


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure and how precisely; see `hessdiag.diagnose` for the arguments of the same names.

    Raises:
        HessdiagError: a value cannot be used; one sentence says why.
    """

    matrix: str = "ggn"
    per: str = "example"
    method: str = "auto"
    rtol: float = 0.05
    max_products: int = 400
    seed: int = 0
    class_dim: int | None = None
    output: str | int | None = None

    def __post_init__(self) -> None:
        check_choice("matrix", self.matrix, MATRICES)
        check_choice("per", self.per, VIEWS)
        check_choice("method", self.method, METHODS)
        check_number("rtol", self.rtol, "pass a relative error above 0, such as 0.05", above=0)
        check_whole("max_products", self.max_products, least=2)
        check_whole("seed", self.seed)

    @property
    def identity(self) -> dict[str, str]:
        """Return what the numbers depend on, as texts: a file of finished work is of one identity."""
        given = {key: value for key, value in asdict(self).items() if value is not None}
        return {key: str(value) for key, value in given.items()} | {"units": UNITS}

    def plan(self, problem: Problem, shape: NetworkShape, *, memory: int) -> Plan:
        """Pick the algorithm; in the batch view by the costs that are estimated with so many bytes of memory."""
        how = {"method": self.method, "matrix": self.matrix, "per": self.per}
        size, cost = problem.batch.size, None
        if self.per == "batch":
            fits = pairs_fit(shape, problem.loss, memory)
            limits = Limits(self.rtol, self.max_products, problem.loss.has_root, fits, memory)
            cost = batch_cost(shape, problem.blocks, size, limits)
        return plan(**how, outputs=shape.outputs, batch_size=size, cost=cost)

    @property
    def kind(self) -> Matrix:
        """Return `matrix` as the type that products take."""
        return cast(Matrix, self.matrix)
