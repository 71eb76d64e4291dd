"""How often 95 % intervals hold the truth: every method at its default budget, block by block, over 1000 seeds.

    python scripts/coverage.py                      # everything; about an hour on one core
    python scripts/coverage.py --only probe --seeds 200 --out /tmp/coverage.json

The interval is what a reader makes of a report: value ± 1.96 standard errors. The truth is the exact method's, and of
the noise scale its value over all data that were drawn. Products with the blocks are those of dense matrices, formed
once for a network: the same numbers as by differentiation, a thousand times as fast.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import combinations_with_replacement
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from hessdiag import init, plots
from hessdiag.curvature.batch_sketch import sketch_per_batch
from hessdiag.curvature.estimators.stopping import Budget
from hessdiag.curvature.exact import exact_per_batch, exact_per_example
from hessdiag.curvature.probe import probe
from hessdiag.curvature.result import Curvature
from hessdiag.curvature.room import Room
from hessdiag.curvature.sketch import sketch_per_example
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import resolve_loss
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.products import Products
from hessdiag.execution.memory import Memory
from hessdiag.network.blocks import Block, find_blocks
from hessdiag.network.shapes import measure_shapes
from hessdiag.plots.coverage import draw_coverage
from hessdiag.results.coverage_study import CoverageRow, CoverageStudy
from hessdiag.results.numbers import Z95, Array

OUT = Path("figures")
ROUNDING = 1e-9  # relative; of the exact values


class Attention(nn.Module):
    """One transformer block on four tokens, read out at the last."""

    def __init__(self, tokens: int = 20, width: int = 8) -> None:
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, tokens)

    def forward(self, numbers: Tensor) -> Tensor:
        """Token numbers (B, T) to logits (B, tokens)."""
        x = self.embedding(numbers)  # (B, T, width)
        q, k, v = self.query_key_value(x).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.transpose(1, 2) / math.sqrt(q.shape[-1]), dim=-1)
        x = x + self.out(weights @ v)
        x = x + self.down(nn.functional.gelu(self.up(x)))
        return self.head(x[:, -1])


def mlp(seed: int, examples: int) -> tuple[nn.Module, Tensor]:
    layers = (nn.Linear(16, 14), nn.Tanh(), nn.Linear(14, 12), nn.Tanh(), nn.Linear(12, 20))
    return nn.Sequential(*layers), inputs(seed, examples, 16)


def lenet(seed: int, examples: int) -> tuple[nn.Module, Tensor]:
    convolutions = (nn.Conv2d(2, 5, 3, stride=2), nn.ReLU(), nn.Conv2d(5, 6, 3, stride=2), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*convolutions, nn.Linear(24, 12), nn.ReLU(), nn.Linear(12, 20)), inputs(
        seed, examples, 2, 12, 12
    )


def transformer(seed: int, examples: int) -> tuple[nn.Module, Tensor]:
    return Attention(), torch.randint(20, (examples, 4), generator=torch.Generator().manual_seed(seed))


def linear(seed: int, examples: int) -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 30)), inputs(seed, examples, 24)


def inputs(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


NETWORKS = {"LeNet-like": lenet, "MLP": mlp, "transformer": transformer, "linear": linear}
LOSSES = {"LeNet-like": "cross-entropy", "MLP": "random-quadratic", "transformer": "cross-entropy", "linear": "mse"}
EXAMPLES = 8
LARGE = 300  # examples of a batch


def problem_of(network: str, *, data: int = 1, examples: int = EXAMPLES) -> Problem:
    """The same weights whatever the data."""
    torch.manual_seed(0)
    model, x = NETWORKS[network](data, examples)
    model = init.apply(model.double(), "fan-in")
    targets = None
    if LOSSES[network] == "mse":
        targets = inputs(data + 10**6, examples, 30)
    if LOSSES[network] == "cross-entropy":
        targets = torch.randint(20, (examples,), generator=torch.Generator().manual_seed(data + 10**6))
    batch = Batch.of(x, targets)
    loss = resolve_loss(LOSSES[network], y=batch.call(model).detach(), targets=targets, seed=0)
    blocks = [block for block in find_blocks(model)[0] if block.kind == "weight"]
    return Problem(model, batch, loss, blocks)


class Dense:
    """What `Products` does, from matrices (B, P, P) of all weights."""

    reason = "dense"

    def __init__(self, problem: Problem, matrix: str) -> None:
        self.model = problem.model
        products = Products(problem, matrix)  # type: ignore[arg-type]
        columns = []
        for block in problem.blocks:
            units = torch.eye(block.numel, dtype=torch.float64).view(-1, *block.shape)
            parts = [
                torch.cat([p.detach() for p in products.batch_column(block, problem.blocks, units, part)], dim=1)
                for part in problem.batch.chunks(1)
            ]
            columns.append(torch.stack(parts))  # (B, P_j, P): rows of the transpose
        self.transposed = torch.cat(columns, dim=1)
        ends = np.cumsum([0, *(block.numel for block in problem.blocks)])
        self.places = {block.name: slice(a, b) for block, a, b in zip(problem.blocks, ends, ends[1:], strict=False)}

    def truth(self, per: str) -> Array:
        """(L, L) squared norms."""
        matrices = self.transposed if per == "example" else self.transposed.mean(dim=0, keepdim=True)
        places = self.places.values()
        norms = [[matrices[:, j, i].square().sum(dim=(1, 2)).mean() for j in places] for i in places]
        return np.array(norms, dtype=np.float64)

    def column_norms(self, column: Block, rows: Sequence[Block], probes: Tensor, part: Batch) -> Tensor:
        """As `Products.column_norms`."""
        own = self.transposed[part.offset : part.offset + part.size, self.places[column.name]]
        moved = probes.flatten(2) @ own  # (B, M, P)
        return torch.stack([moved[..., self.places[row.name]].square().sum(dim=-1) for row in rows], dim=-1)

    def batch_column(self, column: Block, rows: Sequence[Block], probes: Tensor, batch: Batch) -> list[Tensor]:
        """As `Products.batch_column`."""
        own = self.transposed[batch.offset : batch.offset + batch.size, self.places[column.name]].mean(dim=0)
        moved = probes.flatten(1) @ own
        return [moved[:, self.places[row.name]] for row in rows]

    def batch_column_norms(self, column: Block, rows: Sequence[Block], probes: Tensor, batch: Batch) -> Tensor:
        """As `Products.batch_column_norms`."""
        return torch.stack([p.square().sum(dim=1) for p in self.batch_column(column, rows, probes, batch)], dim=1)


Measure = Callable[[int], Curvature]


def probes(network: str, *, matrix: str, per: str, max_products: int = 400) -> tuple[Measure, Array]:
    problem = problem_of(network)
    dense = Dense(problem, matrix)
    shape = measure_shapes(problem.model, problem.batch, problem.blocks)

    def measure(seed: int) -> Curvature:
        with mock.patch("hessdiag.curvature.probe.Products", return_value=dense):
            budget = Budget(0.05, max_products)
            return probe(problem, matrix=matrix, per=per, budget=budget, shape=shape, seed=seed, memory=2**27)  # type: ignore[arg-type]

    return measure, dense.truth(per)


def sketches(network: str, *, max_products: int = 400) -> tuple[Measure, Array]:
    problem = problem_of(network)
    truth = exact_per_example(problem, chunk=EXAMPLES).frobenius_sq
    room = Room(measure_shapes(problem.model, problem.batch, problem.blocks), Memory(2**34, 2**34))

    def measure(seed: int) -> Curvature:
        return sketch_per_example(
            problem,
            outputs=room.shape.outputs,
            budget=Budget(0.05, max_products),
            room=room,
            seed=seed,
        )

    return measure, truth


def batch_sketches(network: str, *, max_products: int = 400) -> tuple[Measure, Array]:
    """Of a batch that is large enough to be known from some of its examples."""
    problem = problem_of(network, examples=LARGE)
    outputs = problem.batch.call(problem.model).shape[1]

    def measure(seed: int) -> Curvature:
        budget = Budget(0.05, max_products)
        return sketch_per_batch(problem, outputs=outputs, budget=budget, fit=lambda cotangents: LARGE, seed=seed)

    return measure, exact_per_batch(problem, chunk=LARGE).frobenius_sq


def exact(network: str, *, per: str) -> tuple[Measure, Array]:
    problem = problem_of(network)
    run = exact_per_example if per == "example" else exact_per_batch
    return lambda seed: run(problem, chunk=EXAMPLES), Dense(problem, "ggn").truth(per)


METHODS: dict[str, Callable[[str], tuple[Measure, Array]]] = {
    "exact, per example": partial(exact, per="example"),
    "sketch": sketches,
    "sketch, 60 products": partial(sketches, max_products=60),
    "sketch, per batch": batch_sketches,
    "sketch, per batch, 5 products": partial(batch_sketches, max_products=5),
    "probe, per example": partial(probes, matrix="hessian", per="example"),
    "probe, per batch": partial(probes, matrix="hessian", per="batch"),
    "probe, per example, 24 products": partial(probes, matrix="hessian", per="example", max_products=24),
    "probe, per example, 40 products": partial(probes, matrix="hessian", per="example", max_products=40),
    "probe, per batch, 24 products": partial(probes, matrix="hessian", per="batch", max_products=24),
    "probe, per batch, 40 products": partial(probes, matrix="hessian", per="batch", max_products=40),
}


@dataclass(frozen=True)
class Tally:
    """Values, standard errors and products of one method on one network, seeds first."""

    values: Array  # (S, L, L)
    errors: Array
    products: Array  # (S, L)


def tally(method: str, network: str, seeds: Sequence[int]) -> Tally:
    """Measure with every seed."""
    measure, _ = METHODS[method](network)
    found = [measure(seed) for seed in seeds]
    return Tally(
        np.array([c.frobenius_sq for c in found]),
        np.array([c.stderr for c in found]),
        np.array([[d.products for d in c.diagonal.values()] for c in found]),
    )


def coverage_rows(method: str, network: str, seeds: int) -> list[CoverageRow]:
    """One row a pair of blocks (i, j), i <= j; for exact methods one seed says it all."""
    truth = METHODS[method](network)[1]
    names = [block.name for block in problem_of(network).blocks]
    found = tally(method, network, range(seeds if not method.startswith("exact") else 1))
    rows = []
    for i, j in combinations_with_replacement(range(len(names)), 2):
        value, error, true = found.values[:, i, j], found.errors[:, i, j], truth[i, j]
        if true <= 1e-20 * truth.max():
            continue
        # A pilot may find that all unit vectors would cost no more: what is exact by then says nothing of intervals.
        sampled = error > 0 if (error > 0).sum() > len(error) / 10 else np.ones(len(error), dtype=bool)
        value, error = value[sampled], error[sampled]
        rows.append(row(method, network, names[i], names[j], value, error, true, float(found.products.mean())))
    return rows


def row(
    method: str, network: str, a: str, b: str, value: Array, error: Array, true: float, products: float
) -> CoverageRow:
    gap = value - true
    return CoverageRow(
        method=method,
        network=network,
        row=a,
        column=b,
        covered=int((np.abs(gap) <= Z95 * error + ROUNDING * true).sum()),
        seeds=len(value),
        missed=float((error > 0.05 * value).mean()),
        bias=float(gap.mean() / true),
        bias_stderr=float(gap.std(ddof=1) / math.sqrt(len(gap)) / true) if len(gap) > 1 else 0.0,
        stderr=float(np.median(error) / true),
        spread=float(gap.std() / true),
        products=products,
        undecided=0,
    )


def measured(methods: Sequence[str], networks: Sequence[str], seeds: int, workers: int) -> Iterator[CoverageRow]:
    cases = [(method, network) for method in methods for network in networks]
    with ProcessPoolExecutor(workers) as pool:
        for found in pool.map(coverage_rows, *zip(*cases, strict=True), [seeds] * len(cases)):
            low, high = min(r.share for r in found), max(r.share for r in found)
            first = found[0]
            worst = max(found, key=lambda r: abs(r.bias) / (r.bias_stderr or math.inf))
            print(
                f"{first.method:32} {first.network:12} coverage {low:.3f}-{high:.3f}"
                f" ({sum(r.share for r in found) / len(found):.3f}), {first.products:.0f} products,"
                f" stderr {np.median([r.stderr for r in found if r.row == r.column]):.3f},"
                f" bias {100 * worst.bias:+.2f} % (z {worst.bias / (worst.bias_stderr or math.inf):+.1f}),"
                f" missed rtol {max((r.missed for r in found if r.row == r.column), default=0):.2f},"
                f" undecided {max(r.undecided for r in found)}",
                flush=True,
            )
            yield from found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only", default="", help="methods whose name starts so")
    parser.add_argument("--network", default="")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=OUT / "coverage")
    options = parser.parse_args()
    methods = [m for m in METHODS if m.startswith(options.only)]
    networks = [n for n in NETWORKS if n.startswith(options.network)]
    rows = list(measured(methods, networks, options.seeds, options.workers))
    CoverageStudy(tuple(rows)).to_json(options.out.with_suffix(".json"))
    plots.save(draw_coverage(rows), options.out)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
