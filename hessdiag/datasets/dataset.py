"""A classification data set in memory; sparse rows stay sparse until they are asked for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from hessdiag.errors import HessdiagError

MAX_DENSE_BYTES = 2**29  # rows of at most this size are made dense once rather than at every batch


@dataclass(frozen=True)
class Dataset:
    """Examples with a class each.

    Attributes:
        name: of the data set.
        rows: (N, features), a SciPy CSR matrix.
        targets: (N,) classes from 0.
        classes: how many there are.
        note: how it differs from the published one; empty where it does not.
    """

    name: str
    rows: Any
    targets: npt.NDArray[np.int64]
    classes: int
    note: str = ""

    def __len__(self) -> int:
        return int(self.rows.shape[0])

    @property
    def features(self) -> int:
        """Length of a row."""
        return int(self.rows.shape[1])

    def take(self, index: Tensor) -> Tensor:
        """Return the rows of these numbers, dense and in float32: (*index.shape, features)."""
        dense = self.rows[index.flatten().numpy()].toarray()
        return torch.from_numpy(np.asarray(dense, dtype=np.float32)).view(*index.shape, self.features)

    def subset(self, count: int, *, seed: int = 0) -> Dataset:
        """Draw that many rows without replacement, or return all where there are no more; the note says so."""
        if count >= len(self):
            return self
        if count < 1:
            raise HessdiagError(f"{count} rows of {self.name}: ask for at least 1")
        chosen = np.sort(np.random.default_rng(seed).permutation(len(self))[:count])
        note = "; ".join(filter(None, [self.note, f"{count} of {len(self)} rows"]))
        return replace(self, rows=self.rows[chosen], targets=self.targets[chosen], note=note)

    def most_frequent(self, count: int) -> Dataset:
        """Keep that many features, those that are not 0 in the most rows; the note says so."""
        if count >= self.features:
            return self
        if count < 1:
            raise HessdiagError(f"{count} features of {self.name}: ask for at least 1")
        entries = np.asarray(self.rows.getnnz(axis=0))
        chosen = np.sort(np.argsort(-entries, kind="stable")[:count])
        note = "; ".join(filter(None, [self.note, f"the {count} most frequent of {self.features} features"]))
        return replace(self, rows=self.rows[:, chosen], note=note)

    def digest(self) -> str:
        """Return a short digest of rows and targets."""
        summed = hashlib.blake2b(digest_size=8)
        for part in (self.rows.indptr, self.rows.indices, self.rows.data, self.targets):
            summed.update(np.ascontiguousarray(part).tobytes())
        return summed.hexdigest()
