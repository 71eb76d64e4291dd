"""The gradient of a batch, by whatever way it comes."""

import torch
from torch import Tensor, nn

from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import CrossEntropy
from hessdiag.derivatives.problem import Problem
from hessdiag.diagnosis.batch_gradient import GradientSum
from hessdiag.diagnosis.moments import Checks, sum_moments
from hessdiag.models import StridedLeNet
from hessdiag.network.blocks import find_blocks


def lenet() -> Problem:
    torch.manual_seed(0)
    model, x = StridedLeNet(), torch.randn(10, 3, 32, 32)
    return Problem(model, Batch.of(x, torch.randint(10, (10,))), CrossEntropy(), find_blocks(model)[0])


def differentiated(problem: Problem, *, chunk: int) -> dict[str, Tensor]:
    sums = GradientSum()
    sums.differentiate(problem, chunk=chunk)
    found = sums.mean(problem.batch.size)
    assert found is not None
    return found


def test_what_a_resumed_run_computes_anew_has_the_bits_of_what_came_with_the_moments() -> None:
    """Also where a strided convolution is sent back through in another way than PyTorch's."""
    problem, sums = lenet(), GradientSum()
    sum_moments(problem, chunk=4, checks=Checks(seed=0), gradients=sums)
    anew, with_moments = differentiated(problem, chunk=4), sums.mean(10)
    assert with_moments is not None
    assert anew.keys() == with_moments.keys()
    for name, gradient in anew.items():
        assert torch.equal(gradient, with_moments[name]), name


def test_it_is_the_gradient_of_the_mean_loss() -> None:
    problem = lenet()
    (x,), labels = problem.batch.args, problem.batch.targets
    loss = nn.functional.cross_entropy(problem.model(x), labels)
    exact = torch.autograd.grad(loss, list(problem.model.parameters()))
    for found, want in zip(differentiated(problem, chunk=3).values(), exact, strict=True):
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-6)
