"""How often the 95 % intervals of `hessdiag.sharpness` hold: 200 seeds on a network whose eigenvalues are known.

python scripts/sharpness_coverage.py
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import nn

import hessdiag
from hessdiag.curvature.spectrum import sampled_spectra
from hessdiag.derivatives.products import CurvatureOperator
from hessdiag.results.numbers import Z95
from hessdiag.results.sharpness import BlockSharpness

SEEDS = 200


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(17, 16), nn.Tanh(), nn.Linear(16, 17), nn.Tanh(), nn.Linear(17, 3)).double()
    x, t = torch.randn(24, 17, dtype=torch.float64), torch.arange(24) % 3
    rows = []
    for matrix in ("ggn", "hessian"):
        found = coverage(hessdiag.operator(model, x, t, matrix=matrix, blocks=["0.weight", "2.weight"]))
        for blocks, shares in zip((["0.weight"], ["2.weight"], ["0.weight", "2.weight"]), found, strict=True):
            names = "trace", "norm", "largest", "density"
            rows.append({"matrix": matrix, "blocks": blocks, **dict(zip(names, shares.tolist(), strict=True))})
            print(rows[-1], flush=True)
    Path("figures/sharpness_coverage.json").write_text(json.dumps(rows, indent=1) + "\n")


def coverage(operator: CurvatureOperator) -> np.ndarray:
    """Shares of the seeds whose intervals hold, of each part and of all: (parts + 1, 4)."""
    dense = torch.from_numpy(operator @ np.eye(operator.shape[0]))
    ends = [*operator.starts, operator.shape[0]]
    places = [slice(*each) for each in [*pairwise(ends), (0, ends[-1])]]
    eigenvalues = [torch.linalg.eigvalsh((dense + dense.T)[rows, rows] / 2).numpy() for rows in places]
    operator.products = (
        lambda columns: [  # the same products, faster
            dense[start : start + len(v), start : start + len(v)] @ v for start, v in columns
        ]
    )
    groups = [
        (rows, {"name": str(rows), "shape": (len(v),), "numel": len(v)})
        for rows, v in zip(places, eigenvalues, strict=True)
    ]
    held = []
    for seed in range(SEEDS):
        sampled = sampled_spectra(operator, groups, density=False, rtol=1e-3, memory=2**30, seed=seed)
        spread = sampled_spectra(operator, groups, density=True, rtol=1e-3, memory=2**30, seed=seed)
        held.append([holds(*each) for each in zip(sampled, spread, eigenvalues, strict=True)])
    return np.mean(held, axis=0)


def holds(found: BlockSharpness, spread: BlockSharpness, eigenvalues: np.ndarray) -> tuple[float, ...]:
    """Whether trace, norm, largest eigenvalue and density lie within their intervals."""
    levels = np.quantile(eigenvalues, [0.1, 0.9, 0.97]) + 1e-9
    share = [(eigenvalues > level).mean() for level in levels]
    above, error = spread.density(levels)
    return (
        abs(found.trace - eigenvalues.sum()) <= Z95 * found.trace_stderr,
        abs(found.frobenius_sq - (eigenvalues**2).sum()) <= Z95 * found.frobenius_sq_stderr,
        abs(found.largest - eigenvalues[-1]) <= found.largest_error,
        np.mean(np.abs(above - share) <= Z95 * error + 0.5 / len(eigenvalues)),
    )


if __name__ == "__main__":
    main()
