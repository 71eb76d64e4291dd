"""The first step of an optimiser: the slope g·u along its direction u, and the curvature uᵀGu.

The Gauss-Newton matrix of a batch applied to one u that all its examples share costs next to nothing where Jacobians
are at hand:

    u_iᵀ G_ij u_j = mean over examples of (J_i u_i)ᵀ S (J_j u_j),

with J_l u_l from the cotangents that were sent back for the blocks' norms: all N of an example, where it is exact, or
random ones z with E zzᵀ = I, where z_kᵀ A^T J_l u_l has the right second moments for every pair of blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from hessdiag.curvature.norm_steps import movable_norms
from hessdiag.data.batch import Batch
from hessdiag.derivatives.backward_pass import Numbered, all_jacobians, unit_cotangents
from hessdiag.derivatives.drawn_classes import DrawnClasses
from hessdiag.derivatives.functional import FunctionalModel, tangent
from hessdiag.derivatives.jacobian_form import Jacobian
from hessdiag.derivatives.losses import hessian_matrix, hessian_products, root_products, sides_of
from hessdiag.derivatives.magnitude import largest_entry
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.seeds import gaussians
from hessdiag.execution.work import ALL_HERE, Result, Work
from hessdiag.network.moved_norms import MovedNorms

Gradients = Mapping[str, Tensor]
Direction = Callable[[Gradients], Gradients]

DIRECTIONS: Mapping[str, Direction] = {
    "sgd": lambda gradients: gradients,
    "adam": lambda gradients: {name: g.sign() for name, g in gradients.items()},  # its first step, with eps = 0
}
MAX_EXACT = 32  # outputs of which all are sent back where nothing else sends any
RANDOM = 24  # else so many random directions
KEYS = ("step_map", "step_sums", "gradient_sq")


@dataclass(frozen=True)
class FirstStep:
    """Directions of O optimisers.

    Attributes:
        names: of the optimisers.
        along: their directions by the name of a trainable parameter, (O, *shape).
        norms: normalisations that are moved with the backward pass to the blocks.
    """

    names: tuple[str, ...]
    along: Mapping[str, Tensor]
    norms: MovedNorms | None = None

    @classmethod
    def of(cls, gradients: Gradients, directions: Mapping[str, Direction] = DIRECTIONS) -> FirstStep:
        """The directions that optimisers make of the gradients of a batch."""

        def of_one(name: str, gradient: Tensor) -> Tensor:
            return torch.stack([direction({name: gradient})[name] for direction in directions.values()])

        return cls(tuple(directions), {name: of_one(name, gradient) for name, gradient in gradients.items()})

    def moving_norms(self, problem: Problem) -> FirstStep:
        """The same, with normalisations that are no blocks moved with the backward pass to the blocks."""
        return replace(self, norms=movable_norms(problem, self.along))

    def of_block(self, name: str, jacobian: Jacobian | None, nothing: Tensor) -> Tensor:
        """cotangent^T J u of every example, (B, C, O), in float64; `nothing` is zero, of that shape."""
        if jacobian is None or name not in self.along:
            return nothing
        return jacobian.along(self.along[name].reshape(len(self.names), -1))

    def of_the_rest(
        self, problem: Problem, part: Batch, cotangents: Tensor | DrawnClasses, norms: Jacobian | None
    ) -> Tensor | None:
        """The same of all trainable parameters that are no block together, (B, C, O).

        By the Jacobian of the steps of `norms`, and of what is left by a forward-mode pass for each optimiser. None
        where there are none.
        """
        moved = None if norms is None else norms.dense().J.double() * norms.size
        elsewhere = {block.name for block in problem.blocks} | (self.norms.names if self.norms else set())
        rest = {name: u for name, u in self.along.items() if name not in elsewhere}
        if not rest:
            return moved
        held = dict(problem.model.named_parameters())
        at = {name: held[name].detach() for name in rest}
        network = FunctionalModel(problem.model)
        forward_mode = all(block.structured for block in problem.blocks if block.kind == "scalar")
        tangents = [
            tangent(network, at, {name: u[o] for name, u in rest.items()}, part, forward_mode=forward_mode)
            for o in range(len(self.names))
        ]
        if isinstance(cotangents, DrawnClasses):
            rest_moved = cotangents.along(torch.stack(tangents).flatten(2, -2))
        else:
            left, right = cotangents.flatten(2).double(), torch.stack(tangents).flatten(2).double()
            rest_moved = torch.einsum("cbn,obn->bco", left, right)
        return rest_moved if moved is None else moved + rest_moved


def exact_sums(found: Tensor, S: Tensor, gradient: Tensor) -> Result:
    """What `step_sums` returns, from `columns` of all outputs, and the loss's Hessian (B, N, N) and gradient (B, N)."""
    slope = torch.einsum("bn,bnol->bol", gradient.double(), found)
    return step_sums(torch.einsum("bnm,bmol->bnol", S.double(), found), found, slope)


def sketched_sums(problem: Problem, found: Tensor, *, fixed: int, slope_size: float) -> Result:
    """What `step_sums` returns, from random directions.

    Args:
        problem: what to measure.
        found: `columns` of the cotangents A z, or z and S z, and last the gradient of the loss.
        fixed: the first so many z are a basis of weight 1; the weights of the others add up to 1.
        slope_size: what the gradient of the loss has been multiplied by.
    """
    slope, v = found[:, -1] / slope_size, found[:, :-1]
    left, right = (v, v) if problem.loss.has_root else v.chunk(2, dim=1)
    weights = left.new_ones(left.shape[1])
    weights[fixed:] /= len(weights) - fixed
    return step_sums(left * weights[:, None, None], right, slope)


def step_sums(left: Tensor, right: Tensor, slope: Tensor) -> Result:
    """Sums over examples, which add up over batches.

    Args:
        left, right: (B, K, O, L + 1), of which Σ_k left right is the curvature of two blocks; the last of the columns
            is of all parameters that are no block.
        slope: (B, O, L + 1), of each example's own loss.

    Returns:
        `step_map`, (O, L + 1, L + 1): u_iᵀ G_ij u_j; and `step_sums`, (5, O, L + 2): of the slopes s and curvatures q
        of each column, and of all together: Σ s, Σ q, Σ s², Σ s q and Σ q².
    """
    between = torch.einsum("bkoi,bkoj->oij", left, right)
    curvature = (left * right).sum(dim=1)  # (B, O, L + 1)
    joint = (left.sum(dim=3) * right.sum(dim=3)).sum(dim=1)  # (B, O)
    s = torch.cat([slope, slope.sum(dim=2, keepdim=True)], dim=2)
    q = torch.cat([curvature, joint.unsqueeze(2)], dim=2)
    sums = torch.stack([each.sum(dim=0) for each in (s, q, s * s, s * q, q * q)])
    return {"step_map": (between + between.mT).div(2).cpu().numpy(), "step_sums": sums.cpu().numpy()}


def sum_first_step(
    problem: Problem, step: FirstStep, *, outputs: int, chunk: Callable[[int], int], seed: int, work: Work = ALL_HERE
) -> Result:
    """What `step_sums` returns, where no cotangents are sent back for anything else: as with products in weight space.

    Args:
        problem, step: what to measure.
        outputs: N, per example.
        chunk: `chunk(m)` examples are measured at once when m cotangents are sent back.
        seed: of the directions.
        work: carries it out.
    """
    exact = outputs <= MAX_EXACT
    count = outputs if exact else 1 + RANDOM * sides_of(problem.loss)

    def measure(part: Batch) -> Result:
        y = part.call(problem.model).detach()
        if exact:
            jacobians = all_jacobians(problem.model, part, problem.blocks, unit_cotangents, norms=step.norms)
            found = columns(problem, part, step, unit_cotangents(y), jacobians)
            gradient = problem.loss.gradient(y, part.targets).flatten(1)
            return exact_sums(found, hessian_matrix(problem.loss, y, part.targets), gradient)
        z = gaussians(seed, "first step", part.numbers, (RANDOM, *y.shape[1:])).to(y)
        cotangents, size = add_slope(problem, part, y, sent_back(problem, part, y, z))
        sent = all_jacobians(problem.model, part, problem.blocks, lambda y: cotangents, norms=step.norms)
        found = columns(problem, part, step, cotangents, sent)
        return sketched_sums(problem, found, fixed=0, slope_size=size)

    return work.total("first step", list(problem.batch.chunks(max(1, chunk(count)))), measure)


def sent_back(problem: Problem, part: Batch, y: Tensor, z: Tensor) -> Tensor:
    """The cotangents of directions z (q, B, *out): A z where the loss has a root, else z and S z."""
    loss = problem.loss
    if loss.has_root:
        return root_products(loss, y, part.targets, z)
    return torch.cat([z, hessian_products(loss, y, part.targets, z)])


def add_slope(problem: Problem, part: Batch, y: Tensor, cotangents: Tensor) -> tuple[Tensor, float]:
    """Cotangents and, last, `slope_like` them; and what that is multiplied by."""
    slope, size = slope_like(problem, part, y, cotangents)
    return torch.cat([cotangents, slope.unsqueeze(0)]), size


def slope_like(problem: Problem, part: Batch, y: Tensor, cotangents: Tensor) -> tuple[Tensor, float]:
    """The gradient of each example's loss in the outputs (B, *out), as large as cotangents; and how it was made so.

    All share one float32 range.
    """
    slope = problem.loss.gradient(y, part.targets)
    own, others = largest_entry(slope), largest_entry(cotangents)
    size = others / own if own > 0 and others > 0 else 1.0
    size = size if 0 < size < math.inf else 1.0
    return slope * size, size


def columns(
    problem: Problem,
    part: Batch,
    step: FirstStep,
    cotangents: Tensor | DrawnClasses,
    jacobians: Iterable[Numbered],
) -> Tensor:
    """cotangent^T J u of every block, and of all other parameters together, (B, C, O, L + 1).

    The Jacobians are those of the blocks, by number, and last that of the normalisations' steps where there are any.
    """
    like = next(problem.model.parameters())
    nothing = like.new_zeros(part.size, len(cotangents), len(step.names), dtype=torch.float64)
    found, norms = [nothing] * (len(problem.blocks) + 1), None
    for number, jacobian in jacobians:
        if number < len(problem.blocks):
            found[number] = step.of_block(problem.blocks[number].name, jacobian, nothing)
        else:
            norms = jacobian
    rest = step.of_the_rest(problem, part, cotangents, norms)
    return torch.stack(found if rest is None else [*found[:-1], rest], dim=3)
