"""What a measurement found: a frozen record that prints itself as a table and travels as JSON.

A report holds plain numbers (Python and NumPy, never tensors), so that it can be read, plotted and compared without
torch.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from hessdiag.errors import HessdiagError
from hessdiag.network.block_record import BlockRecord
from hessdiag.results.files import write_text
from hessdiag.results.findings import Finding
from hessdiag.results.judgement import Verdict
from hessdiag.results.numbers import Array, normalize, spread
from hessdiag.results.records import WRITTEN, NumbersRecord, Record
from hessdiag.results.rendering import Paged, Plots, Tabled, render
from hessdiag.results.signals import Signals

if TYPE_CHECKING:
    import pandas as pd


SCHEMA = "hessdiag.report/1"

Ended = Literal["exact", "rtol", "budget"]


@dataclass(frozen=True, kw_only=True, eq=False)
class BlockReport(NumbersRecord, BlockRecord):
    """One block of parameters: what it is, what the theory says of it, and what was measured.

    Attributes:
        name, kind, layer, shape, numel, fan_in, fan_out, kernel, groups: what it is, see `BlockRecord`.
        sites_in, sites_out: positions at which the layer reads and writes, per example (rho squared for an image).
        activation_scaling: n_l rho_l^2 E[dx_l^2] E[x_l^2] (Eq. 1 of arXiv 1906.04267).
        gamma: extrinsic scaling factor, of weights, biases and scalars alike.
        gamma_intrinsic: activation_scaling / (P E[W^2]^2), which needs no output of the layer.
        gamma_curvature: `gamma` with the gradient replaced by the back-propagated S u, with S the Hessian of the loss
            in the outputs and u ~ N(0, E[y^2]); free of the loss's own constant.
        nu: weight-gradient ratio E[dW^2] / E[W^2]; NaN for parameters that are all zero.
        weight_sq: E[W^2].
        avg_sq_singular_value: ||G||_F^2 / P of the diagonal block. Sampled values have no bias, so that one
            that is lost in noise may come out below 0.
        stderr: standard error of `avg_sq_singular_value` as an estimate for this batch; 0 where it is exact. It is
            widened for few samples: the value +- 1.96 stderr is a 95 % interval.
        ratio: gamma / avg_sq_singular_value, theory over measurement.
        relative_ratio: ratio / geometric mean of the ratios of all weight blocks.
        products: matrix-vector products per example (or per batch) spent on the block; 0 for the closed form.
        ended: what came of the sampling: `"exact"` (nothing to sample), `"rtol"` (reached) or `"budget"` (it was not).
        x_sq, out_sq, x_gradient_sq, out_gradient_sq: E[x_l^2], E[x_{l+1}^2], E[dx_l^2] and E[dx_{l+1}^2] of the layer
            that holds the block, the gradients being those of one example's loss; NaN where it is neither linear nor
            convolutional, or holds a block that several layers share.
    """

    derived: ClassVar[tuple[str, ...]] = ("relative_curvature",)

    sites_in: int
    sites_out: int
    activation_scaling: float
    gamma: float
    gamma_intrinsic: float
    gamma_curvature: float
    nu: float
    weight_sq: float
    avg_sq_singular_value: float
    stderr: float
    ratio: float
    relative_ratio: float
    products: int
    ended: Ended
    x_sq: float = math.nan
    out_sq: float = math.nan
    x_gradient_sq: float = math.nan
    out_gradient_sq: float = math.nan

    @property
    def relative_curvature(self) -> float:
        """P sigma^2 E[W^2]^2: squared curvature for a *relative* change, free of where between layers a scale sits."""
        return self.numel * self.avg_sq_singular_value * self.weight_sq**2

    @property
    def relative_stderr(self) -> float:
        """stderr / avg_sq_singular_value; 0 where nothing was sampled, NaN where the estimate is not above 0."""
        if self.ended == "exact":
            return 0.0
        return self.stderr / self.avg_sq_singular_value if self.avg_sq_singular_value > 0 else math.nan

    @property
    def lost_in_noise(self) -> bool:
        """Whether a sampled sigma^2 is smaller than its standard error, or below 0: it tells but an upper bound."""
        return self.stderr > 0 and self.avg_sq_singular_value < self.stderr


@dataclass(frozen=True, kw_only=True, eq=False)
class Heatmap(Record):
    """Squared Frobenius norms of all L x L weight blocks of the Hessian or Gauss-Newton matrix.

    Attributes:
        names: the L weight blocks, in execution order.
        numel: their numbers of entries P.
        frobenius_sq: (L, L) array, ||H_ij||_F^2.
        stderr: (L, L) array, standard errors of `frobenius_sq` for this batch; 0 where exact.
    """

    names: tuple[str, ...]
    numel: tuple[int, ...]
    frobenius_sq: Array
    stderr: Array

    def __post_init__(self) -> None:
        for key in ("frobenius_sq", "stderr"):
            if getattr(self, key).size == 0:  # JSON has one empty list for a map of no blocks
                object.__setattr__(self, key, np.zeros((0, 0)))

    def normalized(self) -> Array:
        """||H_ij||_F^2 / sqrt(P_i P_j): symmetric, and the average squared singular value on the diagonal.

        >>> Heatmap(names=("a",), numel=(4,), frobenius_sq=np.array([[8.0]]), stderr=np.zeros((1, 1))).normalized()
        array([[2.]])
        """
        return normalize(self.frobenius_sq, self.numel)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Heatmap):
            return NotImplemented
        return (
            self.names == other.names
            and self.numel == other.numel
            and np.array_equal(self.frobenius_sq, other.frobenius_sq, equal_nan=True)
            and np.array_equal(self.stderr, other.stderr, equal_nan=True)
        )


@dataclass(frozen=True, kw_only=True, repr=False)
class Report(Tabled, Paged, Record):
    """The diagnostic of one network on one batch. Its `repr` is the table.

    Attributes:
        blocks: one entry a block, in execution order.
        heatmap: the weight blocks against one another.
        skipped: `(name, reason)` of every parameter that is not a block.
        model, init, data: names under which they were asked for.
        loss, matrix, per: what was measured; see `hessdiag.diagnose`.
        method, method_reason: the algorithm that ran, and why it was picked.
        seed, batch_size, batches, outputs, rtol: settings; `batch_size` is the number of examples of all `batches`
            together, `outputs` the number of outputs of the network per example.
        batches_read, batches_given: how many batches of the data were read, and how many there are: null where the data
            does not say. 0 read in a report that is older than this.
        device, dtype, versions: what it ran on.
        peak_memory: bytes by which the peak of the process, or of torch on the GPU, rose while measuring. No result,
            hence in no file; 0 in a report that was read back.
        findings: what the rules have to say, gravest first.
        signals, signals_missing: what runs through the network, on some examples of the first batch; None where it was
            not measured, and why.
        output_sq, output_variance: E[y^2] and E[y^2] - E[y]^2 of the network's outputs.
    """

    schema: ClassVar[str] = SCHEMA
    derived: ClassVar[tuple[str, ...]] = ("spread", "verdict")

    blocks: tuple[BlockReport, ...]
    heatmap: Heatmap
    skipped: tuple[tuple[str, str], ...]
    model: str
    init: str
    loss: str
    matrix: str
    per: str
    method: str
    method_reason: str
    seed: int
    batch_size: int
    outputs: int
    rtol: float
    device: str
    dtype: str
    data: str = "as given"
    batches: int = 1
    batches_read: int = field(default=0, compare=False, metadata=WRITTEN)
    batches_given: int | None = field(default=None, compare=False, metadata=WRITTEN)
    versions: Mapping[str, str] = field(default_factory=dict)
    peak_memory: int = field(default=0, compare=False)
    findings: tuple[Finding, ...] = ()
    signals: Signals | None = None
    signals_missing: str = ""
    output_sq: float = math.nan
    output_variance: float = math.nan

    def __iter__(self) -> Iterator[BlockReport]:
        """The blocks, in execution order."""
        return iter(self.blocks)

    def __getitem__(self, name: str) -> BlockReport:
        """The block of a parameter, by its name."""
        for block in self.blocks:
            if block.name == name:
                return block
        reasons = dict(self.skipped)
        like = [block.name for block in self.blocks if block.name.rpartition(".")[0] == name]
        why = f": {reasons[name]}" if name in reasons else f": it has {len(self.blocks)} blocks, see report.blocks"
        raise HessdiagError(f"the report has no block {name!r}" + (f": ask for {' or '.join(like)}" if like else why))

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self.blocks)

    def __bool__(self) -> bool:
        """A report without blocks is one, too."""
        return True

    def __contains__(self, block: object) -> bool:
        """Whether there is a block of that name, or that very block."""
        return any(block in (each.name, each) for each in self.blocks)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return str(render("fragment", self))

    @property
    def plot(self) -> Plots:
        """Figures of it: `report.plot.layers()`, `.heatmap()` and `.ratios()`."""
        return Plots(self)

    @property
    def verdict(self) -> Verdict:
        """Whether the network is healthy, and how equally its blocks are curved."""
        return cast(Verdict, render("verdict", self))

    def to_record(self) -> dict[str, Any]:
        """Return everything by name, the verdict and what was found first."""
        record = super().to_record()
        first = {"schema": self.schema, "verdict": self.verdict, "findings": self.findings}
        last = {"signals": record["signals"], "signals_missing": self.signals_missing}
        return first | {key: value for key, value in record.items() if key not in {*first, *last}} | last

    @property
    def weights(self) -> tuple[BlockReport, ...]:
        """The weight blocks alone: those of the heatmap and the spread."""
        return tuple(block for block in self.blocks if block.kind == "weight")

    @property
    def spread(self) -> dict[str, float]:
        """Largest over smallest value among the weight blocks, for `gamma`, `nu` and `avg_sq_singular_value`."""
        return {key: spread([getattr(block, key) for block in self.weights]) for key in SPREAD_KEYS}

    def to_dataframe(self) -> pd.DataFrame:
        """One row a block, one column an attribute of `BlockReport`."""
        import pandas as pd

        return pd.DataFrame([asdict(block) for block in self.blocks], columns=[f.name for f in fields(BlockReport)])

    def to_csv(self, path: str | os.PathLike[str] | None = None) -> str:
        """The blocks as CSV text, with full precision; also written to `path` when one is given."""
        rows = [{k: _csv_cell(v) for k, v in asdict(block).items()} for block in self.blocks]
        stream = io.StringIO()
        writer = csv.DictWriter(stream, [f.name for f in fields(BlockReport)], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        if path is not None:
            write_text(path, stream.getvalue())
        return stream.getvalue()


SPREAD_KEYS = ("gamma", "nu", "avg_sq_singular_value")


def _csv_cell(value: Any) -> Any:
    return "x".join(map(str, value)) if isinstance(value, tuple) else value
