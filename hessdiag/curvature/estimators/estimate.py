"""An estimate of squared norms with its standard error, and the interval that the two give."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np

from hessdiag.curvature.estimators.student import t_quantile, widening
from hessdiag.execution.work import Result
from hessdiag.results.numbers import Array
from hessdiag.results.report import Ended

ROUNDING = 16  # rounding of one product, in units of the dtype's eps


@dataclass(frozen=True)
class Estimate:
    """Estimates of ‖H_ij‖_F² for one j and several i.

    Attributes:
        frobenius_sq: (rows,).
        stderr: (rows,), 0 only where exact.
        dof: (rows,), degrees of freedom of `stderr`: infinite where exact.
    """

    frobenius_sq: Array
    stderr: Array
    dof: Array

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """Ends, (rows,) each, of v · exp(±t s/v) with v the estimate, s its standard error and t Student's quantile.

        Sums of few squares are skewed to the right and their logarithms are much less so; the interval of the
        logarithm does not reach below 0 either.

        >>> low, high = Estimate(np.array([1.0]), np.array([0.01]), np.array([math.inf])).interval(0.95)
        >>> float(low[0].round(4)), float(high[0].round(4))
        (0.9806, 1.0198)
        """
        t = t_quantile((1 + level) / 2, self.dof)
        relative = np.divide(self.stderr, self.frobenius_sq, out=np.zeros_like(self.stderr), where=self.stderr > 0)
        with np.errstate(over="ignore"):  # an infinite upper end is what two wild samples tell
            factor = np.exp(t * relative)
        high = np.multiply(self.frobenius_sq, factor, out=np.zeros_like(factor), where=self.frobenius_sq > 0)
        return self.frobenius_sq / factor, high

    def relative(self, row: int) -> float:
        """Standard error over estimate of one row."""
        value = float(self.frobenius_sq[row])
        return float(self.stderr[row]) / value if value != 0 else 0.0

    def precision(self, row: int) -> float:
        """`bars` over estimate of one row: what `rtol` is asked of."""
        value = float(self.frobenius_sq[row])
        return float(self.bars[row]) / value if value != 0 else 0.0

    @property
    def bars(self) -> Array:
        """Standard errors of which 1.96 reach to either end of Student's 95 % interval, (rows,)."""
        return np.multiply(self.stderr, widening(self.dof), out=np.zeros_like(self.stderr), where=self.stderr != 0)

    def with_rounding(self, eps: float) -> Estimate:
        """The same with no standard error below what rounding of the products leaves unknown."""
        return Estimate(self.frobenius_sq, np.maximum(self.stderr, ROUNDING * eps * self.frobenius_sq), self.dof)


@dataclass(frozen=True)
class Column(Estimate):
    """An estimate and how it came about.

    Attributes:
        products: matrix-vector products spent, per example in the per-example view.
        ended: what ended the sampling.
    """

    products: int
    ended: Ended

    @classmethod
    def of(cls, estimate: Estimate, products: int, ended: Ended) -> Column:
        """An estimate with its history."""
        return cls(estimate.frobenius_sq, estimate.stderr, estimate.dof, products, ended)

    @property
    def result(self) -> Result:
        """As arrays, to be kept and sent."""
        return {key: np.asarray(value) for key, value in vars(self).items()}

    @classmethod
    def from_result(cls, result: Result) -> Column:
        """The inverse of `result`."""
        ended = cast(Ended, str(result["ended"]))
        return cls(result["frobenius_sq"], result["stderr"], result["dof"], int(result["products"]), ended)

    @classmethod
    def exact(cls, frobenius_sq: Array, products: int) -> Column:
        """Known without error."""
        return cls(frobenius_sq, np.zeros_like(frobenius_sq), np.full_like(frobenius_sq, math.inf), products, "exact")
