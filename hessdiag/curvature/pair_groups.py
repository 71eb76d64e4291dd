"""Inner products of the matrices of pairs of examples, from Jacobians that are at hand.

With J_b^T z and S z as in `hessdiag.curvature.sketch`, ⟨G^(b), G^(c)⟩ = tr(S_b K_bc S_c K_cb) with K_bc = J_b J_c^T.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.estimators.pairs import pair_statistics
from hessdiag.derivatives.jacobian_form import Jacobian
from hessdiag.derivatives.summed import concatenate, concatenate_all
from hessdiag.execution.work import Result

GROUPS = 16  # at least, of a large batch
EXAMPLES = 96  # in all groups, of a large batch
MIN_GROUPS = 4  # of a batch that is not one group, so that they tell an error
SIDE = 64  # outputs of all examples of a group together, where there are so few that all are taken
MAX_GROUP = 8


@dataclass(frozen=True)
class PairGroups:
    """Groups of examples that follow one another, of which some are measured while their Jacobians are at hand.

    Attributes:
        examples: of the batch.
        size: examples of a group.
        count: groups that are measured, spread over the batch.
        blocks: L.
    """

    examples: int
    size: int
    count: int
    blocks: int

    @classmethod
    def of(cls, examples: int, *, largest: int, blocks: int) -> PairGroups | None:
        """Groups of at most `largest` examples; None where there is no pair."""
        if min(examples, largest) < 2:
            return None
        size = examples if examples <= largest else min(largest, max(2, examples // MIN_GROUPS))
        return cls(examples, size, min(max(GROUPS, EXAMPLES // size), examples // size), blocks)

    def order(self) -> list[int]:
        """Numbers of the examples such that each group is spread over the whole batch, which may be sorted."""
        groups = self.examples // self.size
        spread = [place * groups + group for group in range(groups) for place in range(self.size)]
        return [*spread, *range(groups * self.size, self.examples)]

    def chunk(self, examples: int) -> int:
        """As many examples at once as make whole groups."""
        return max(1, examples // self.size) * self.size

    def rows(self, start: int, size: int) -> PairRows:
        """Rows of the groups that lie in a part of the batch, from example `start` in this order."""
        every = self.examples // self.size // self.count
        firsts = {row: row * every * self.size - start for row in range(self.count)}
        inside = {row: first for row, first in firsts.items() if first >= 0 and first + self.size <= size}
        return PairRows(self, inside)


@dataclass(frozen=True)
class PairRows:
    """Means of the groups of one part, filled in block by block.

    Attributes:
        groups: all of them.
        firsts: by row, the first example of a group among those of the part.
        means: own and cross by row and block.
    """

    groups: PairGroups
    firsts: Mapping[int, int]
    means: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def add(self, block: int, own: Tensor, cross: Tensor) -> None:
        """Add the means of one block over each group, (groups of the part,) each."""
        for row, *both in zip(self.firsts, own.tolist(), cross.tolist(), strict=True):
            self.means[row, block] = tuple(both)

    def result(self) -> Result:
        """`own` and `cross`, (count, L), and `found`, (count,): 1 where a group was measured; zero elsewhere.

        Results of parts add up.
        """
        own, cross = np.zeros((2, self.groups.count, self.groups.blocks))
        for place, both in self.means.items():
            own[place], cross[place] = both
        found = np.zeros(self.groups.count)
        found[list(self.firsts)] = 1
        return {"own": own, "cross": cross, "found": found}


PAIRS = ("own", "cross", "found")


@dataclass(frozen=True)
class HeldPairs:
    """Pairs of examples that are measured one after the other: Jacobians are held until those of a group are at hand.

    Attributes:
        rows: of a part that is one group, or none that is measured.
        directions: of each example, the first so many, of a loss that has a root.
        held: Jacobians of the examples so far, by block.
    """

    rows: PairRows
    directions: int
    held: dict[int, list[Jacobian | None]] = field(default_factory=lambda: defaultdict(list))

    def see(self, block: int, jacobian: Jacobian | None) -> None:
        """Take what the next example tells of a block; its own memory may be written to afterwards."""
        if not self.rows.firsts:
            return
        held = self.held[block]
        held.append(None if jacobian is None else concatenate([jacobian.of_cotangents(0, self.directions)]))
        if len(held) < self.rows.groups.size:
            return
        whole = concatenate_all(self.held.pop(block))
        if whole is not None:
            self.rows.add(block, *sketched_means(whole.cross(whole).unsqueeze(0), fixed=0, root=True))


def largest_group(outputs: int) -> int:
    """Examples of a group of which the Gram matrix of all outputs is small."""
    return min(max(2, SIDE // outputs), MAX_GROUP)


def exact_means(K: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Means over the examples of each of G groups of ‖G^(b)‖² and over pairs of ⟨G^(b), G^(c)⟩, (G,) each.

    Args:
        K: (G, B, N, B, N), Gram matrices of the Jacobians of all outputs of all examples.
        S: (G, B, N, N), the loss's Hessian in them.
    """
    SK = torch.einsum("gbij,gbjck->gbick", S, K.to(S))
    return _own_and_cross(torch.einsum("gbick,gckbi->gbc", SK, SK))


def sketched_means(K: Tensor, *, fixed: int, root: bool) -> tuple[Tensor, Tensor]:
    """The same, without bias, from a basis and random directions.

    Args:
        K: (G, B, m, B, m), Gram matrices along A z of m directions of each example, or (G, B, 2m, B, 2m) along z and
            S z.
        fixed: the first so many are a basis of weight 1.
        root: which of the two.
    """
    m = K.shape[2] if root else K.shape[2] // 2
    X = K.double() if root else K[:, :, :m, :, m:].double()
    weight = X.new_ones(m)
    weight[fixed:] /= max(m - fixed, 1)
    terms = X * X.permute(0, 3, 4, 1, 2)
    own, cross = _own_and_cross((terms * weight.view(-1, 1, 1) * weight).sum(dim=(2, 4)))
    if m > fixed:  # a direction is not independent of itself
        each = X.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2)  # (G, B, m, m)
        statistics = pair_statistics(each.flatten(0, 1).unsqueeze(1), each.flatten(0, 1).unsqueeze(1), fixed)
        own = statistics.estimate.view(each.shape[:2]).mean(dim=1)
    return own, cross


def _own_and_cross(pairs: Tensor) -> tuple[Tensor, Tensor]:
    B = pairs.shape[1]
    own = pairs.diagonal(dim1=1, dim2=2).sum(dim=1)
    return own / B, (pairs.sum(dim=(1, 2)) - own) / (B * (B - 1))
