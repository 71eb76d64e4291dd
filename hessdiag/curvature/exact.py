"""Exact Gauss-Newton blocks in output space.

With S the Hessian of the loss in the N outputs of an example and K_l = J_l J_l^T the (N, N) Gram matrix of block l,

    ‖G_ij‖_F² = ‖J_i^T S J_j‖_F² = tr(S K_j S K_i),

or, with a root S = A A^T at hand, the inner product of the Gram matrices of A^T J_i and A^T J_j. That of cross-entropy
has one column less than there are outputs, one of which is the gradient of the loss where an example has one label.

N cotangents are back-propagated once to *all* layers, so that the whole L x L map costs little more than its diagonal
and no probe, hence no noise, is involved. In the batch view the outputs of all B examples count together, G is
divided by B, and K_l is (B N, B N), taken in panels of rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
import torch
from torch import Tensor

from hessdiag.curvature.first_step import KEYS, FirstStep, add_slope, columns, exact_sums, step_sums
from hessdiag.curvature.pair_groups import PAIRS, PairGroups, PairRows, exact_means, sketched_means
from hessdiag.curvature.result import Curvature, Diagonal
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward_pass import Numbered, all_jacobians, sent_to_blocks, unit_cotangents, watch
from hessdiag.derivatives.jacobian_form import Jacobian, groups_from
from hessdiag.derivatives.losses import hessian_matrix, thin_root
from hessdiag.derivatives.problem import Problem
from hessdiag.derivatives.summed import concatenate
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.blocks import Block
from hessdiag.network.hooks import Trace
from hessdiag.results.numbers import Array


def exact_per_example(
    problem: Problem,
    *,
    chunk: int,
    step: FirstStep | None = None,
    groups: PairGroups | None = None,
    work: Work = ALL_HERE,
) -> Curvature:
    """Mean over examples of ‖G_ij^(b)‖_F² for all blocks, `chunk` examples at a time.

    By the way sums of the first step `step`, and pairs of examples within `groups`.
    """
    problem = problem if groups is None else replace(problem, batch=problem.batch.select(groups.order()))
    chunk = chunk if groups is None else groups.chunk(chunk)
    batch, blocks = problem.batch, problem.blocks

    def measure(part: Batch) -> Result:
        pairs = None if groups is None else groups.rows(part.offset - batch.offset, part.size)
        sent = _Sent.of(problem, part, step)
        found = sent.measure(problem, part, step, pairs)
        rows = found.factors.flatten(2)  # (B, L, r r)
        columns = found.factors.transpose(2, 3).flatten(2)
        norms = torch.bmm(rows, columns.transpose(1, 2)).sum(dim=0)
        return {"norms": norms.cpu().numpy(), **found.step_sums(), **(pairs.result() if pairs is not None else {})}

    total = work.total("exact blocks", list(batch.chunks(chunk)), measure)
    first_step = {key: total[key] for key in KEYS} if step is not None else None
    pairs = {key: total[key] for key in PAIRS} if groups is not None else None
    norms = total["norms"] + total["norms"].T  # equal but for rounding
    return replace(_curvature(norms / (2 * batch.size), blocks), first_step=first_step, pairs=pairs)


@dataclass(frozen=True)
class _Sent:
    """Cotangents of some examples that tell everything, before they are sent back.

    Attributes:
        seen: the forward pass.
        cotangents: (C, B, *out): r columns of a root of the loss's Hessian, or all outputs; behind the columns, where a
            first step is to be measured and they do not make it up, the loss's gradient.
        S: (B, N, N), the loss's Hessian, where all outputs are sent back; None where columns of a root are.
        weights: (B, r): what the columns of the root are multiplied by.
        slope: (B, C), the loss's gradient in terms of the cotangents; None where it is not.
    """

    seen: Trace
    cotangents: Tensor
    S: Tensor | None
    weights: Tensor
    slope: Tensor | None

    @classmethod
    def of(cls, problem: Problem, part: Batch, step: FirstStep | None) -> _Sent:
        """One forward pass, and what is to be sent back."""
        loss = problem.loss
        seen = watch(problem.model, part, problem.blocks, norms=None if step is None else step.norms)
        y = seen.y.detach()
        root = thin_root(loss, y, part.targets)
        if root is None:
            S = hessian_matrix(loss, y, part.targets).double()
            slope = loss.gradient(y, part.targets).flatten(1).double()
            return cls(seen, unit_cotangents(y), S, S.new_ones(S.shape[:2]), slope)
        cotangents = root.columns.permute(2, 0, 1).to(y)
        if root.slope is None and step is not None:
            cotangents, size = add_slope(problem, part, y, cotangents)
            slope = root.weights.new_zeros(len(y), len(cotangents))
            slope[:, -1] = 1 / size
            return cls(seen, cotangents, None, root.weights, slope)
        return cls(seen, cotangents, None, root.weights, root.slope)

    def measure(self, problem: Problem, part: Batch, step: FirstStep | None, pairs: PairRows | None) -> _Measured:
        """Send all of them back, and ask each block's Jacobian everything at once."""
        count = len(self.cotangents)
        grams = self.weights.new_zeros(part.size, len(problem.blocks), count, count)

        def noted() -> Iterator[Numbered]:
            """The Jacobians one by one, each once its Gram matrices are taken: none is held longer."""
            sent = sent_to_blocks(problem.model, part, problem.blocks, self.seen, self.cotangents)
            for number, jacobian in sent:
                if step is not None and jacobian is not None and jacobian.pays_formed(len(step.names)):
                    jacobian = jacobian.dense()
                if number < len(problem.blocks) and jacobian is not None:
                    grams[:, number] = jacobian.gram()
                    if pairs is not None and pairs.firsts:
                        pairs.add(number, *self._between(jacobian, [*pairs.firsts.values()], pairs.groups.size))
                yield number, jacobian

        found = None
        if step is None:
            deque(noted(), maxlen=0)
        else:
            found = columns(problem, part, step, self.cotangents, noted())
        return _Measured(grams, self.S, self.weights, self.slope, found)

    def _between(self, jacobian: Jacobian, firsts: Sequence[int], size: int) -> tuple[Tensor, Tensor]:
        """Means over examples and pairs of groups of so many, from each of the `firsts` on."""
        examples = groups_from(firsts, size).to(self.weights.device)
        weights = self.weights[examples]  # (G, size, r)
        r = weights.shape[2]
        K = jacobian.cross_within(firsts, size)[:, :, :r, :, :r]
        if self.S is not None:
            return exact_means(K, self.S[examples])
        weighted = K * weights[..., None, None] * weights[:, None, None]
        return sketched_means(weighted, fixed=r, root=True)


@dataclass(frozen=True)
class _Measured:
    """What the Jacobians of some examples told.

    Attributes:
        grams: K of every block along the cotangents, (B, L, C, C), in float64.
        S, weights, slope: of what was sent back.
        columns: cotangent^T J u of every block along the first step, (B, C, O, L + 1), where there is one.
    """

    grams: Tensor
    S: Tensor | None
    weights: Tensor
    slope: Tensor | None
    columns: Tensor | None

    @cached_property
    def factors(self) -> Tensor:
        """S K of every block, (B, L, r, r), in float64: products of two underflow first."""
        r = self.weights.shape[1]
        grams = self.grams[..., :r, :r]
        if self.S is not None:
            return torch.stack([torch.matmul(self.S, K) for K in grams.unbind(1)], dim=1)
        return grams * (self.weights.unsqueeze(2) * self.weights.unsqueeze(1)).unsqueeze(1)

    def step_sums(self) -> Result:
        """Slopes and curvatures of the first step, and squares of the gradients; nothing where there is none."""
        if self.columns is None:
            return {}
        assert self.slope is not None
        own = {"gradient_sq": torch.einsum("bc,blcd,bd->l", self.slope, self.grams, self.slope).cpu().numpy()}
        if self.S is not None:
            return {**exact_sums(self.columns, self.S, self.slope), **own}
        rooted = self.columns[:, : self.weights.shape[1]] * self.weights[..., None, None]
        return {**step_sums(rooted, rooted, torch.einsum("bc,bcol->bol", self.slope, self.columns)), **own}


def exact_per_batch(problem: Problem, *, chunk: int, work: Work = ALL_HERE) -> Curvature:
    """‖G_ij‖_F² of the batch-mean loss for all blocks; `chunk` examples are held against all others at a time."""
    batch, loss, blocks = problem.batch, problem.loss, problem.blocks

    @cache  # not before the first panel asks for it: a resumed run may have them all
    def everything() -> tuple[Tensor, list[Jacobian | None]]:
        parts = [output_jacobians(problem, part) for part in batch.chunks(chunk)]
        S = [hessian_matrix(loss, y, p.targets) for (y, _), p in zip(parts, batch.chunks(chunk), strict=True)]
        return torch.cat(S).double(), [
            _concatenate([jacobians[i] for _, jacobians in parts]) for i in range(len(blocks))
        ]

    def panel(part: Batch) -> Result:
        S, whole = everything()
        B, N, _ = S.shape
        start, size = part.offset - batch.offset, part.size
        left: list[Tensor] = []
        right: list[Tensor] = []
        for others in whole:
            if others is None:
                zero = S.new_zeros(size, N, B, N)
                left.append(zero)
                right.append(zero)
                continue
            K = others.narrow(start, start + size).cross(others).double()  # (b, N, B, N)
            left.append(torch.einsum("bij,bjck->bick", S[start : start + size], K))
            right.append(torch.einsum("bicj,cjk->bick", K, S))
        return {"norms": (torch.stack(left).flatten(1) @ torch.stack(right).flatten(1).T).cpu().numpy()}

    norms = work.total("exact panels", list(batch.chunks(chunk)), panel)["norms"]
    return _curvature((norms + norms.T) / (2 * batch.size**2), blocks)


def output_jacobians(problem: Problem, part: Batch) -> tuple[Tensor, list[Jacobian | None]]:
    """Outputs (B, *out) and, for each block, the Jacobian of all N outputs of each example."""
    outputs: list[Tensor] = []

    def cotangents_of(y: Tensor) -> Tensor:
        outputs.append(y)
        return unit_cotangents(y)

    jacobians = dict(all_jacobians(problem.model, part, problem.blocks, cotangents_of))
    return outputs[0], [jacobians[number] for number in range(len(problem.blocks))]


def _concatenate(parts: Sequence[Jacobian | None]) -> Jacobian | None:
    present = [part for part in parts if part is not None]
    return concatenate(present) if present else None


def _curvature(frobenius_sq: Array, blocks: Sequence[Block]) -> Curvature:
    """Keep the diagonal of all blocks and the map of the weight blocks."""
    full = np.maximum(frobenius_sq, 0)
    diagonal = {block.name: Diagonal(float(full[i, i]), 0.0, 0, "exact") for i, block in enumerate(blocks)}
    weights = [i for i, block in enumerate(blocks) if block.kind == "weight"]
    heat = full[weights][:, weights]
    return Curvature(diagonal, heat, np.zeros_like(heat))
