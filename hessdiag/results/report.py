"""What a measurement found: a frozen record that prints itself as a table and travels as JSON.

A report holds plain numbers (Python and NumPy, never tensors), so that it can be read, plotted and compared without
torch. Undefined numbers are NaN in Python and `null` in JSON; an overflow is `"inf"` or `"-inf"`.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from hessdiag.errors import HessdiagError
from hessdiag.results.files import write_text

if TYPE_CHECKING:
    import pandas as pd

SCHEMA = "hessdiag.report/1"

Kind = Literal["weight", "bias", "scalar"]
Ended = Literal["exact", "rtol", "budget"]
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class BlockReport:
    """One block of parameters: what it is, what the theory says of it, and what was measured.

    Attributes:
        name: the parameter's name in the model, as in `model.named_parameters()`.
        kind: `"weight"` (a matrix or kernel), `"bias"` or `"scalar"` (a learnable multiplier).
        layer: class name of the module that owns the parameter.
        shape, numel: shape of the parameter and its number of entries P.
        fan_in: input channels that one output channel reads (in_channels / groups).
        fan_out: output channels.
        kernel: spatial size of the kernel, `()` for a linear layer.
        groups: groups of a convolution, else 1.
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
        noise_scale: curvature noise scale in examples, E||G^(b)||^2 / E<G^(b), G^(c)> over examples b and pairs b != c:
            the batch size past which the Gauss-Newton matrix of a batch stops shrinking; NaN where not measured.
        noise_scale_stderr: its standard error as an estimate for the data that the examples are of; infinite where the
            scale is lost in noise, NaN where there is only one group of examples.
    """

    name: str
    kind: Kind
    layer: str
    shape: tuple[int, ...]
    numel: int
    fan_in: int
    fan_out: int
    kernel: tuple[int, ...]
    groups: int
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
    noise_scale: float = math.nan
    noise_scale_stderr: float = math.nan

    def __post_init__(self) -> None:
        # One NaN object for all: tuples compare by identity first, so reports with undefined numbers can be equal.
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, float) and math.isnan(value):
                object.__setattr__(self, f.name, math.nan)

    def __eq__(self, other: object) -> bool:
        # As tuples, for the above: the generated method compares field by field from Python 3.13 on.
        if not isinstance(other, BlockReport):
            return NotImplemented
        return tuple(vars(self).values()) == tuple(vars(other).values())


@dataclass(frozen=True, kw_only=True, eq=False)
class Heatmap:
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


def normalize(frobenius_sq: Array, numel: Sequence[int]) -> Array:
    """Divide ||H_ij||_F^2 by sqrt(P_i P_j); leading dimensions of `frobenius_sq` are kept."""
    root = np.sqrt(np.asarray(numel, dtype=np.float64))
    return np.asarray(frobenius_sq / np.outer(root, root))


@dataclass(frozen=True, kw_only=True, repr=False)
class Report:
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
        device, dtype, versions: what it ran on.
        peak_memory: most bytes taken while measuring beside what was in use before: by the process, or by torch on the
            GPU. No result, hence in no file; 0 in a report that was read back.
    """

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
    versions: Mapping[str, str] = field(default_factory=dict)
    peak_memory: int = field(default=0, compare=False)

    @property
    def weights(self) -> tuple[BlockReport, ...]:
        """The weight blocks alone: those of the heatmap and the spread."""
        return tuple(block for block in self.blocks if block.kind == "weight")

    @property
    def spread(self) -> dict[str, float]:
        """Largest over smallest value among the weight blocks, for `gamma`, `nu` and `avg_sq_singular_value`."""
        return {key: spread([getattr(block, key) for block in self.weights]) for key in SPREAD_KEYS}

    def __repr__(self) -> str:
        from hessdiag.tables.report_table import render

        return render(self)

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

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The whole report as JSON text (`from_json` gives it back exactly); also written to `path` when given."""
        named = {f.name: getattr(self, f.name) for f in fields(self) if f.compare}
        record = {"schema": SCHEMA} | named | {"spread": self.spread}
        text = dumps(record)
        if path is not None:
            write_text(path, text)
        return text

    def to_html(self, path: str | os.PathLike[str] | None = None) -> str:
        """One HTML page that needs nothing else: verdict, table, figures, definitions, and `to_json` inside.

        The same report gives the same bytes. Also written to `path` when one is given.
        """
        from hessdiag.html import render

        text = render(self)
        if path is not None:
            write_text(path, text)
        return text

    @classmethod
    def from_json(cls, source: str | os.PathLike[str]) -> Report:
        """Read a report back from JSON text or from a file that holds it.

        Raises:
            HessdiagError: the text is not JSON, or of another schema.
        """
        record = loads(source, SCHEMA)
        with complete(SCHEMA):
            record.pop("spread")
            record["blocks"] = tuple(BlockReport(**_block_types(block)) for block in record["blocks"])
            record["heatmap"] = _heatmap_from(record["heatmap"])
            record["skipped"] = tuple((name, reason) for name, reason in record["skipped"])
            return cls(**record)


SPREAD_KEYS = ("gamma", "nu", "avg_sq_singular_value")


def spread(values: Sequence[float]) -> float:
    """Largest over smallest of some positive values; NaN when there are none or one is undefined, inf when one is 0.

    An estimate below 0, which an unbiased one of little may be, leaves it undefined.

    >>> spread([2.0, 8.0, 4.0]), spread([2.0, -1.0])
    (4.0, nan)
    """
    if not values or any(math.isnan(v) or v < 0 for v in values):
        return math.nan
    low, high = min(values), max(values)
    if low == 0:
        return math.nan if high == 0 else math.inf
    return high / low


def dumps(record: Mapping[str, Any]) -> str:
    """Strict JSON (no NaN literals), one line for each top-level key and each block."""
    parts = []
    for key, value in record.items():
        plain = _to_plain(value)
        if key == "blocks" and isinstance(plain, list):
            body = "[\n  " + ",\n  ".join(json.dumps(b, allow_nan=False) for b in plain) + "\n ]" if plain else "[]"
        else:
            body = json.dumps(plain, allow_nan=False)
        parts.append(f" {json.dumps(key)}: {body}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def loads(source: str | os.PathLike[str], schema: str) -> dict[str, Any]:
    """Parse what `dumps` wrote, from text or file, and check its schema; the `"schema"` key is dropped."""
    is_text = isinstance(source, str) and source.lstrip().startswith("{")
    where = "the JSON text" if is_text else repr(str(source))
    try:
        text = str(source) if is_text else Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise HessdiagError(f"cannot read {where} ({error.strerror}): name a file that hessdiag wrote") from error
    except ValueError as error:  # bytes that are no text
        raise HessdiagError(f"{where} is not a text file: name a file that hessdiag wrote") from error
    try:
        record = json.loads(text)
    except json.JSONDecodeError as error:
        raise HessdiagError(f"{where} is not valid JSON ({error}): expected a {schema} file") from error
    found = record.pop("schema", None) if isinstance(record, dict) else None
    if found != schema:
        raise HessdiagError(f"{where} has schema {found!r}, expected {schema!r}")
    return dict(record)


@contextmanager
def complete(schema: str) -> Iterator[None]:
    """Refuse a record of the right schema in which something is missing, unknown or of another type."""
    try:
        yield
    except HessdiagError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HessdiagError(f"the {schema} record is damaged ({error}): write it anew with hessdiag") from error


def to_array(nested: Any) -> Array:
    """A NumPy array from nested JSON lists of numbers, `null`, `"inf"` and `"-inf"`."""
    array = np.asarray(_from_plain(nested), dtype=np.float64)
    array.setflags(write=False)
    return array


def _to_plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, np.ndarray):
        return _to_plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_to_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _to_plain(v) for k, v in value.items()}
    if isinstance(value, (BlockReport, Heatmap)):
        return {f.name: _to_plain(getattr(value, f.name)) for f in fields(value)}
    return value


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_plain(v) for v in value]
    return math.nan if value is None else float(value)


def _block_types(block: Mapping[str, Any]) -> dict[str, Any]:
    typed = dict(block)
    for f in fields(BlockReport):
        if f.type == "float" and (f.default is MISSING or f.name in typed):
            typed[f.name] = _from_plain(typed[f.name])
    return typed | {"shape": tuple(block["shape"]), "kernel": tuple(block["kernel"])}


def _heatmap_from(record: Mapping[str, Any]) -> Heatmap:
    size = len(record["names"])
    return Heatmap(
        names=tuple(record["names"]),
        numel=tuple(record["numel"]),
        frobenius_sq=to_array(record["frobenius_sq"]).reshape(size, size),
        stderr=to_array(record["stderr"]).reshape(size, size),
    )


def _csv_cell(value: Any) -> Any:
    return "x".join(map(str, value)) if isinstance(value, tuple) else value
