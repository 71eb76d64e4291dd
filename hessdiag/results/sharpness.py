"""Traces and extreme eigenvalues of a network's curvature, of the whole and of each block, and how sure they are."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from scipy.special import stdtrit

from hessdiag.errors import HessdiagError
from hessdiag.results.blocks import MATRICES, MODES
from hessdiag.results.numbers import Z95, Array, bounded, percent, short
from hessdiag.results.records import Record
from hessdiag.results.text_table import Detail, Printed, TextTable, plain_text, printable, size

TITLES = ("block", "size", "trace", "± 95 %", "λ_max", "±", "effective rank", "2/λ_max", "λ_min")


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockSharpness(Record):
    """Eigenvalues of one diagonal block H of the batch-mean loss's curvature.

    Attributes:
        name: of the parameter, or of a part of it; of the model where it is the whole.
        shape, numel: of the parameter or part, and its number of entries P.
        trace, trace_stderr: sum of the eigenvalues, and its standard error: 0 where all of them are known.
        frobenius_sq, frobenius_sq_stderr: ‖H‖_F², the sum of their squares.
        largest, largest_error: λ_max, and how near to it an eigenvalue is for certain (residual of its Ritz vector).
        smallest, smallest_error: λ_min in the same way; NaN for a Gauss-Newton matrix whose eigenvalues are sampled.
        exact: whether all eigenvalues are known, up to rounding.
        nodes, weights: (R, k) eigenvalues and the share of all P near each: of all eigenvalues (R = 1), or of R random
            starts of stochastic Lanczos quadrature; empty where no density was asked for.
        informative: whether the density is more than rounding.
    """

    derived: ClassVar[tuple[str, ...]] = ("effective_rank", "edge")

    name: str
    shape: tuple[int, ...]
    numel: int
    trace: float
    frobenius_sq: float
    largest: float
    smallest: float
    trace_stderr: float = 0.0
    frobenius_sq_stderr: float = 0.0
    largest_error: float = 0.0
    smallest_error: float = 0.0
    exact: bool = False
    nodes: Array = field(default_factory=lambda: np.zeros((0, 0)))
    weights: Array = field(default_factory=lambda: np.zeros((0, 0)))
    informative: bool = True

    @property
    def effective_rank(self) -> float:
        """Return trace² / ‖H‖_F²: how many equal eigenvalues would have both."""
        return self.trace**2 / self.frobenius_sq if self.frobenius_sq > 0 else math.nan

    @property
    def edge(self) -> float:
        """Return 2 / λ_max: with a larger rate, gradient descent on the quadratic model diverges."""
        return 2 / self.largest if self.largest > 0 else math.nan

    def density(self, at: Array, *, below: bool = False) -> tuple[Array, Array]:
        """Share of eigenvalues above each number, or below, and its standard error over random starts, like `at`.

        Of so few starts, ± 1.96 of it are a 95 % interval by Student's t. Refused without a density beyond rounding.
        """
        if not self.nodes.size or not self.informative:
            why = "its products are rounding alone" if self.nodes.size else "pass density=True (--density)"
            raise HessdiagError(f"block {self.name!r} has no spectral density: {why}")
        beyond = self.nodes[:, :, None] < at if below else self.nodes[:, :, None] > at
        share = (self.weights[:, :, None] * beyond).sum(axis=1)
        if (count := len(share)) == 1:
            return share[0], np.zeros(len(at))
        return share.mean(axis=0), share.std(axis=0, ddof=1) / count**0.5 * stdtrit(count - 1, 0.975) / Z95


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Sharpness(Printed, BlockSharpness):
    """A network's eigenvalues, those of all measured blocks together, and of each; printing it shows the table.

    Attributes:
        blocks: of each parameter or part.
        off_diagonal_share, off_diagonal_stderr: share of ‖H‖_F² between different blocks, and its standard error.
        matrix, mode, loss, data, init, batch_size: what was measured.
        how: which way to the eigenvalues was taken, a clause.
        seed, device, dtype, versions: with what.
        skipped: names and reasons of parameters that were not measured.
    """

    schema: ClassVar[str] = "hessdiag.sharpness/1"

    blocks: tuple[BlockSharpness, ...]
    off_diagonal_share: float
    off_diagonal_stderr: float
    matrix: str
    mode: str
    loss: str
    batch_size: int
    how: str
    data: str = ""
    init: str = "as given"
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    versions: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, name: str) -> BlockSharpness:
        return {block.name: block for block in self.blocks}[name]

    def __iter__(self) -> Iterator[BlockSharpness]:
        return iter(self.blocks)

    def text(self, detail: Detail = "table") -> str:
        """Return the numbers of the whole (`"brief"`), and the table of all blocks."""
        lines = [
            f"{printable(self.name)}: λ_max {bounded(self.largest, self.largest_error)}, trace"
            f" {bounded(self.trace, Z95 * self.trace_stderr)}, effective rank {short(self.effective_rank)}",
            f"Where the loss is quadratic, gradient descent overshoots above a rate of {short(self.edge)} (2/λ_max).",
        ]
        lines += [f"λ_min is {bounded(self.smallest, self.smallest_error)}."] if self.smallest < 0 else []
        if len(self.blocks) > 1:
            noise = f" ± {percent(Z95 * self.off_diagonal_stderr)}" if self.off_diagonal_stderr > 0 else ""
            lines.append(f"Pairs of different parameters hold {percent(self.off_diagonal_share)}{noise} % of ‖H‖².")
        empty = [printable(each.name) for each in (self, *self) if not each.informative]
        if empty:
            more = f", like those of {len(empty) - 1} more" if len(empty) > 1 else ""
            lines.append(f"! The block of {empty[0]} has no information{more}: products with it are rounding.")
        lines += ["How the eigenvalues are distributed: --plots draws it, --json holds it."] if self.nodes.size else []
        if detail == "brief":
            return plain_text(lines)
        return plain_text([
            *lines,
            f"{MATRICES[self.matrix]} of the mean loss of {self.batch_size} examples, {self.loss}, {MODES[self.mode]}",
            *("", TextTable(TITLES, [_cells(each) for each in self]).with_values(), ""),
            f"weights {self.init}{', ' * bool(self.data)}{self.data}, seed {self.seed}, {self.dtype}; {self.how}",
            "±: of the trace 1.96 standard errors; of λ_max the distance within which there is an eigenvalue.",
            *(f"Not measured: {name}, {reason}" for name, reason in self.skipped if detail == "whole"),
        ])  # fmt: skip


def _cells(block: BlockSharpness) -> list[str]:
    errors = ("exact", "exact") if block.exact else (short(Z95 * block.trace_stderr), short(block.largest_error))
    trace, largest, rank, edge = map(short, (block.trace, block.largest, block.effective_rank, block.edge))
    smallest = short(block.smallest) if block.smallest < 0 else "–"
    return [printable(block.name), size(block.shape), trace, errors[0], largest, errors[1], rank, edge, smallest]
