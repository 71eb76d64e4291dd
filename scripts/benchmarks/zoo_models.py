"""Real architectures, measured by hessdiag and by dense rows of plain autograd, side by side.

    python scripts/benchmarks/zoo_models.py [--only NAME]... [--again]

Every block and every pair of blocks of the Gauss-Newton matrix of each example is compared, and of a few networks of
the Hessian too. Needs timm, torchvision and transformers. Takes some minutes; results are kept in
figures/zoo_models.json model by model, and what is in there is not run again without --again.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from architectures import ARCHITECTURES, Architecture
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import hessdiag
from hessdiag.derivatives.losses import RandomQuadratic
from hessdiag.results.records import write_text

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # the oracles are kept in tests

from tests.jacobians import Dense, dense_ggn, dense_hessian  # noqa: E402

FILE = ROOT / "figures" / "zoo_models.json"
RIGHT = 1e-8  # largest relative error that counts as right


@dataclass(frozen=True)
class Line:
    """What came out for one architecture and one matrix.

    Attributes:
        name, library, matrix: what was measured.
        parameters: of the network.
        blocks, skipped: that were measured, and trainable weights that were not.
        error: largest relative error over all pairs of blocks.
        seconds: of the measurement, without the reference.
        said: the refusal, or the exception, if there was one.
    """

    name: str
    library: str
    matrix: str
    parameters: int
    blocks: int = 0
    skipped: int = 0
    error: float | None = None
    seconds: float = 0.0
    said: str = ""


class InDouble(TorchFunctionMode):
    """Operations that ask for float32, as normalisation in language models does, take float64: errors show."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        swapped = {key: _wider(value) for key, value in (kwargs or {}).items()}
        return func(*map(_wider, args), **swapped)


def _wider(value: Any) -> Any:
    return torch.float64 if value is torch.float32 else value


def measure(name: str, architecture: Architecture, matrix: str) -> Line:
    """Measure and compare one."""
    line: dict[str, Any] = {"name": name, "library": architecture.library, "matrix": matrix}
    mode: AbstractContextManager[Any] = InDouble() if architecture.library == "transformers" else nullcontext()
    with mode:
        model, inputs = architecture.build()
        line["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        start = time.perf_counter()
        try:
            report = hessdiag.diagnose(model, inputs, matrix=matrix, mode="eval", method="exact")
        except hessdiag.HessdiagError as error:
            return Line(**line, said=f"refused: {error}")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            return Line(**line, said=f"crash: {type(error).__name__} in {where.filename}: {str(error).splitlines()[0]}")
        seconds = time.perf_counter() - start
        model, _ = architecture.build()  # anew: some keep what they computed
        dense = reference(model, inputs, [block.name for block in report.blocks], matrix)
    wanted = {n for n, p in model.named_parameters() if p.requires_grad and p.dim() > 1}
    skipped = sum(name in wanted for name, _ in report.skipped)
    error = largest_error(report, dense)
    return Line(**line, blocks=len(report.blocks), skipped=skipped, error=error, seconds=round(seconds, 2))


def reference(model: nn.Module, inputs: Tensor | Mapping[str, Tensor], names: list[str], matrix: str) -> Dense:
    """Dense rows of every example alone."""

    def call(b: int) -> Tensor:
        one = {key: value[b : b + 1] for key, value in inputs.items()} if isinstance(inputs, Mapping) else {}
        y = model(**one) if one else model(inputs[b : b + 1])
        return y if isinstance(y, Tensor) else y["logits"]

    y = call(0).detach()
    R = RandomQuadratic.draw(y.numel(), seed=0, like=y).R
    of = dense_ggn if matrix == "ggn" else dense_hessian
    size = len(next(iter(inputs.values())) if isinstance(inputs, Mapping) else inputs)
    at = [model.get_parameter(name) for name in names]
    return of(call, at, lambda z, _: z.flatten() @ R @ z.flatten(), examples=size)


def largest_error(report: hessdiag.Report, dense: Dense) -> float:
    """Over all blocks and all pairs."""
    names = [block.name for block in report.blocks]
    order = [names.index(name) for name in report.heatmap.names]
    found = dense.map.clone()
    for i, row in zip(order, report.heatmap.frobenius_sq, strict=True):
        found[i, order] = torch.from_numpy(row)
    diagonal = [block.avg_sq_singular_value * block.numel for block in report.blocks]
    of_blocks = dense.error(found.diagonal_scatter(torch.tensor(diagonal, dtype=torch.float64)))
    return float(torch.maximum(dense.error(found), of_blocks).max())


def table(lines: list[Line]) -> Table:
    """As printed."""
    shown = Table(title="hessdiag beside dense rows")
    for heading in ("architecture", "matrix", "parameters", "blocks", "skipped", "error", "seconds", "said"):
        shown.add_column(heading, overflow="fold")
    for line in lines:
        error = "" if line.error is None else f"{line.error:.1e}"
        style = "red" if line.said or line.error is None or not line.error <= RIGHT else None
        cells = (line.name, line.matrix, line.parameters, line.blocks, line.skipped, error, line.seconds, line.said)
        shown.add_row(*map(str, cells), style=style)
    return shown


def main(
    only: Annotated[list[str] | None, typer.Option(help="Run those whose name holds this.")] = None,
    again: Annotated[bool, typer.Option(help="Run what is in the file once more.")] = False,
) -> None:
    """Run what the file does not hold yet, and print all of it."""
    warnings.simplefilter("ignore")  # of the libraries
    torch.set_num_threads(1)
    held = {(r["name"], r["matrix"]): Line(**r) for r in json.loads(FILE.read_text())} if FILE.exists() else {}
    wanted = [name for name in ARCHITECTURES if only is None or any(part in name for part in only)]
    for name in wanted:
        for matrix in ("ggn", "hessian")[: 1 + ARCHITECTURES[name].hessian]:
            if again or (name, matrix) not in held:
                print(name, matrix, file=sys.stderr)
                held[name, matrix] = measure(name, ARCHITECTURES[name], matrix)
                records = [asdict(line) for line in held.values()]
                write_text(FILE, "[\n " + ",\n ".join(map(json.dumps, records)) + "\n]\n")
    lines = [line for (name, _), line in held.items() if name in wanted]
    Console(width=200 if not sys.stdout.isatty() else None).print(table(lines))
    right = sum(line.error is not None and line.error <= RIGHT for line in lines)
    print(f"{right} of {len(lines)} right")


if __name__ == "__main__":
    typer.run(main)
