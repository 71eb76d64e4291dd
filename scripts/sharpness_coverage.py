"""How often the 95 % intervals of `hessdiag.sharpness` hold: 200 seeds on a network whose eigenvalues are known.

python scripts/sharpness_coverage.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

import hessdiag
from hessdiag.curvature.operator import Part
from hessdiag.curvature.spectrum import described, sampled_spectrum
from hessdiag.results.numbers import Z95

SEEDS = 200


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(17, 16), nn.Tanh(), nn.Linear(16, 17), nn.Tanh(), nn.Linear(17, 3)).double()
    x, t = torch.randn(24, 17, dtype=torch.float64), torch.arange(24) % 3
    rows = []
    for matrix in ("ggn", "hessian"):
        whole = hessdiag.operator(model, x, t, matrix=matrix, blocks=["0.weight", "2.weight"])
        for parts in ([whole.parts[0]], [whole.parts[1]], whole.parts):
            rows.append(coverage(whole.only(parts), parts, matrix))
            print(rows[-1], flush=True)
    Path("figures/sharpness_coverage.json").write_text(json.dumps(rows, indent=1) + "\n")


def coverage(
    operator: hessdiag.curvature.operator.CurvatureOperator, parts: list[Part], matrix: str
) -> dict[str, object]:
    """Shares of the seeds whose intervals hold."""
    size = operator.shape[0]
    dense = torch.from_numpy(operator @ np.eye(size))
    eigenvalues = torch.linalg.eigvalsh((dense + dense.T) / 2).numpy()
    operator.torch_matmat = dense.__matmul__  # the same products, faster
    levels = np.quantile(eigenvalues, [0.1, 0.9, 0.97]) + 1e-9
    share = [(eigenvalues > level).mean() for level in levels]
    held = []
    for seed in range(SEEDS):
        found = sampled_spectrum(operator, density=False, rtol=1e-3, memory=2**30, seed=seed, **described(parts))
        trace = abs(found.trace - eigenvalues.sum()) <= Z95 * found.trace_stderr
        norm = abs(found.frobenius_sq - (eigenvalues**2).sum()) <= Z95 * found.frobenius_sq_stderr
        largest = abs(found.largest - eigenvalues[-1]) <= found.largest_error
        spread = sampled_spectrum(operator, density=True, rtol=1e-3, memory=2**30, seed=seed, **described(parts))
        above, error = spread.density(levels)
        density = np.mean(np.abs(above - share) <= Z95 * error + 0.5 / size)
        held.append((trace, norm, largest, density))
    names = "trace", "norm", "largest", "density"
    return {
        "matrix": matrix,
        "blocks": [part.name for part in parts],
        **dict(zip(names, np.mean(held, axis=0).tolist(), strict=True)),
    }


if __name__ == "__main__":
    main()
