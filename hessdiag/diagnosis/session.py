"""The course of a measurement: batch after batch, moments first, then curvature, each in units of work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain

import torch
from torch import Tensor, nn

from hessdiag.curvature.measurement import measure_curvature
from hessdiag.curvature.plan import Plan
from hessdiag.curvature.result import Curvature
from hessdiag.curvature.settings import Settings
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import check_targets
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.batch_gradient import GradientSum, gradient_sq
from hessdiag.diagnosis.float64 import told_in_float64
from hessdiag.diagnosis.gradient_check import READ_ELSEWHERE
from hessdiag.diagnosis.moments import Checks, moments_of, sum_moments
from hessdiag.diagnosis.nearby import check_nearby
from hessdiag.errors import HessdiagError
from hessdiag.execution.identity import digest_of_batch, digest_of_outputs
from hessdiag.execution.memory import OVERHEAD, Memory
from hessdiag.execution.work import Result, Work
from hessdiag.network.shapes import NetworkShape, measure_shapes

LARGE = 2**24  # bytes of all parameters, whose gradients cost much
GRADIENTS = 8  # of all parameters, that examples may take the memory of


@dataclass(frozen=True)
class Measured:
    """What one batch gave."""

    examples: int
    plan: Plan
    moments: Result
    batch_gradient_sq: Mapping[str, float]
    curvature: Curvature


@dataclass(frozen=True)
class Session:
    """The course of a measurement over batches.

    Attributes:
        settings, memory: of all of it.
        gradients: that of the batch, once its moments are measured.
    """

    settings: Settings
    memory: Memory
    gradients: GradientSum = field(default_factory=GradientSum)

    def measure(
        self, problem: Problem, shape: NetworkShape, like: Tensor, later: Iterator[Batch], work: Work
    ) -> tuple[Problem, NetworkShape, list[Measured]]:
        """One batch after the other; how the blocks are read is settled on the first.

        Args:
            problem: with the first batch.
            shape: of the network.
            like: outputs of an example or two.
            later: the other batches.
            work: carries it out.
        """
        measured: list[Measured] = []
        for number, batch in enumerate(chain([problem.batch], later)):
            problem = replace(problem, batch=batch)
            scoped = self.scoped(work, problem, number)
            if measured:
                check_tensors(problem.model, batch)
                check_targets(problem.loss, like=like, targets=batch.targets)
            read = self.read_again if measured else self.read_right
            problem, shape, sums = read(problem, shape, scoped)
            measured.append(self.measure_batch(problem, shape, sums, scoped))
        return problem, shape, measured

    def read_again(self, problem: Problem, shape: NetworkShape, work: Work) -> tuple[Problem, NetworkShape, Result]:
        """Moments of a later batch, which is to be read as the first one was.

        Raises:
            HessdiagError: it is not.
        """
        sums = self.sum_moments(problem, shape, work)
        moments = moments_of(problem, sums)
        if misread := [name for name in moments.misread if name not in moments.undecided]:
            raise HessdiagError(
                f"block {misread[0]!r} is used in another way from example {problem.batch.offset} on:"
                " measure batches that take the same path through the model, one kind at a time"
            )
        return problem, shape, sums

    def scoped(self, work: Work, problem: Problem, number: int) -> Work:
        """Units of one batch, told apart by its number, its content, and what the model makes of it."""
        if work.journal is None and work.ranks.size == 1:
            return work
        digest = digest_of_batch(problem.batch)
        work.ranks.agree("data", digest)
        outputs = digest_of_outputs(problem.model, problem.batch, seed=self.settings.seed) if work.journal else ""
        return work.within(f"batch {number + 1} {digest} {outputs}")

    def measure_batch(self, problem: Problem, shape: NetworkShape, sums: Result, work: Work) -> Measured:
        """Curvature, and all that goes with it, of one batch."""
        how = self.settings.plan(problem, shape, memory=self.memory.total)
        curvature = measure_curvature(problem, how, shape, self.settings, memory=self.memory, work=work)
        squares = {}
        if self.settings.per == "batch":
            squares = gradient_sq(problem, self.batch_gradient(problem, shape))
        return Measured(problem.batch.size, how, sums, squares, curvature)

    def batch_gradient(self, problem: Problem, shape: NetworkShape) -> Mapping[str, Tensor]:
        """The gradient of the batch-mean loss in all trainable parameters, by name."""
        found = self.gradient_sum(problem, shape).mean(problem.batch.size)
        assert found is not None
        return found

    def gradient_sum(self, problem: Problem, shape: NetworkShape) -> GradientSum:
        """That of the whole batch; what another rank or an earlier run measured is differentiated again."""
        if self.gradients.examples != problem.batch.size:
            self.gradients.differentiate(problem, chunk=self.gradient_chunk(shape))
        return self.gradients

    def read_right(self, problem: Problem, shape: NetworkShape, work: Work) -> tuple[Problem, NetworkShape, Result]:
        """Moments; a block whose gradient the hooks do not explain is measured again without a structural rule."""
        problem, shape, sums = self._read_at_weights(problem, shape, work)
        if self.settings.matrix != "hessian":
            return problem, shape, sums
        elsewhere = check_nearby(problem, chunk=self.gradient_chunk(shape), seed=self.settings.seed)
        if not elsewhere:
            return problem, shape, sums
        problem = without(problem, dict.fromkeys(elsewhere, READ_ELSEWHERE))
        return problem, shape, self.sum_moments(problem, shape, work.within("read from one place"))

    def _read_at_weights(
        self, problem: Problem, shape: NetworkShape, work: Work
    ) -> tuple[Problem, NetworkShape, Result]:
        """The same by first derivatives at the weights as they are."""
        try:
            sums = self.sum_moments(problem, shape, work)
        except HessdiagError:  # perhaps because what an embedding looks up for all examples was written for each
            blocks = [replace(b, structured=b.structured and not b.looked_up) for b in problem.blocks]
            if blocks == list(problem.blocks):
                raise
            problem = replace(problem, blocks=blocks)
            shape = measure_shapes(problem.model, problem.batch, blocks)
            sums = self.sum_moments(problem, shape, work.within("without lookups"))
        misread = moments_of(problem, sums).misread
        if not misread:
            return problem, shape, sums
        blocks = [replace(b, structured=b.structured and b.name not in misread) for b in problem.blocks]
        problem = replace(problem, blocks=blocks)
        shape = measure_shapes(problem.model, problem.batch, blocks)
        sums = self.sum_moments(problem, shape, work.within("without rules"))
        moments = moments_of(problem, sums)
        told = told_in_float64(problem, moments.undecided) if moments.undecided else {}
        if left := {name: why for name, why in moments.misread.items() if name not in moments.undecided} | told:
            problem = without(problem, left)
            sums = self.sum_moments(problem, shape, work.within("what is left"))
        return problem, shape, sums

    def sum_moments(self, problem: Problem, shape: NetworkShape, work: Work) -> Result:
        """Moments of one batch."""
        checks = Checks(
            self.settings.seed,
            alone=shape.chunk(4, memory=self.memory.chunk),
            large=shape.parameters >= LARGE,
        )
        chunk = self.gradient_chunk(shape)
        return sum_moments(problem, chunk=chunk, checks=checks, gradients=self.gradients, work=work)

    def gradient_chunk(self, shape: NetworkShape) -> int:
        """Examples at once in a pass with few cotangents.

        As each chunk has gradients of all parameters, those may take several times their memory.
        """
        room = min(GRADIENTS * shape.parameters, self.memory.total // OVERHEAD)
        return shape.chunk(4, memory=max(self.memory.chunk, room))


def without(problem: Problem, left: Mapping[str, str]) -> Problem:
    """The problem without some blocks, which are skipped for a reason each.

    Raises:
        HessdiagError: no block is left.
    """
    kept = [block for block in problem.blocks if block.name not in left]
    if not kept:
        raise HessdiagError(f"no block can be measured; {next(iter(left))!r}: {next(iter(left.values()))}")
    return replace(problem, blocks=kept, skipped=(*problem.skipped, *left.items()))


def check_tensors(model: nn.Module, batch: Batch) -> None:
    """Refuse a batch that is not on the model's device or not in its floating-point type."""
    tensors = (*model.parameters(), *batch.tensors)
    devices = {str(t.device) for t in tensors}
    if len(devices) > 1:
        raise HessdiagError(f"model and inputs are on {' and '.join(sorted(devices))}: move them to one device")
    dtypes = {t.dtype for t in tensors if t.is_floating_point()}
    if len(dtypes) > 1 or not dtypes <= {torch.float32, torch.float64}:
        names = " and ".join(sorted(str(dtype).removeprefix("torch.") for dtype in dtypes))
        raise HessdiagError(f"model and inputs are in {names}: convert both to float32 or float64")
