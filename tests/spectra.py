"""Symmetric matrices of known spectrum, and random signs."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

SPECTRA: dict[str, Callable[[int], np.ndarray]] = {
    "polynomial": lambda n: 1.0 / np.arange(1, n + 1),
    "exponential": lambda n: 0.9 ** np.arange(n),
    "flat": np.ones,
    "rank 30": lambda n: np.r_[1.0 / np.arange(1, 31), np.zeros(n - 30)],
    "indefinite": lambda n: np.random.default_rng(0).standard_normal(n),
    "indefinite decay": lambda n: (-1.0) ** np.arange(n) / np.arange(1, n + 1),
}


def symmetric(eigenvalues: np.ndarray, *, seed: int) -> Tensor:
    """Random eigenvectors."""
    basis = np.linalg.qr(np.random.default_rng(seed).standard_normal((len(eigenvalues),) * 2))[0]
    return torch.from_numpy(basis * eigenvalues @ basis.T)


def signs(count: int, size: int, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, (count, size), generator=generator, dtype=torch.int8) * 2 - 1
