"""Products in weight space against dense matrices, and the honesty of the error bars."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import hessdiag
from hessdiag.curvature.measurement import Settings, measure_curvature
from hessdiag.curvature.probe import hutchinson, probes_for, symmetrize
from hessdiag.data.memory import MemoryBudget
from tests.curvature.problems import problem_of
from tests.networks import PLAIN
from tests.oracles import Blocks, frobenius_sq, ggn_blocks, hessian_blocks


def wide(batch: int):
    """Blocks too large for unit vectors to be the cheaper way."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 24), torch.nn.ReLU(), torch.nn.Linear(24, 20)).double()
    return model, torch.randn(batch, 20, dtype=torch.float64)


def test_the_budget_ends_the_sampling_one_example_is_a_batch_and_their_spread_is_no_error() -> None:
    model, x = wide(2)
    report = hessdiag.diagnose(model, x, matrix="hessian", rtol=1e-3, max_products=50)
    weight = report.weights[0]
    assert (weight.ended, weight.products) == ("budget", 50)
    assert weight.stderr > 1e-3 * weight.avg_sq_singular_value
    assert "standard errors up to 11.0 % (rtol 0.001 was asked for)" in report.text("whole")
    model, x = wide(1)
    options = {"matrix": "hessian", **PLAIN}
    own, mean = (hessdiag.diagnose(model, x, per=per, **options).heatmap for per in ("example", "batch"))
    np.testing.assert_allclose(own.frobenius_sq, mean.frobenius_sq, rtol=1e-10)
    value, stderr = hutchinson(np.array([[1.0, 1.0], [100.0, 100.0]])[..., None])
    assert (value[0], stderr[0]) == (50.5, 0.0)


@pytest.mark.parametrize("dense", [hessian_blocks, ggn_blocks])
@pytest.mark.parametrize("examples", [4, 1])
def test_95_percent_intervals_cover(dense: Callable[..., Blocks], examples: int) -> None:
    """Over 200 seeds at the default number of probes, of four examples and of their mean; blocks and map."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(9, 10), torch.nn.Tanh(), torch.nn.Linear(10, 8)).double()
    names, x, t = ["0.weight", "2.weight"], torch.randn(4, 9).double(), torch.randn(4, 8).double()
    parts = zip(x.split(4 // examples), t.split(4 // examples), strict=True)
    matrices = [dense(model, *part, F.mse_loss, names) for part in parts]
    exact = torch.stack([frobenius_sq(each) for each in matrices]).mean(dim=0).numpy()
    inside, count = [], probes_for(examples)
    for _ in range(200):
        columns = []
        for j in range(2):
            r = torch.randint(0, 2, (examples, matrices[0][j][j].shape[0], count)).double() * 2 - 1
            norms = [[(row[j] @ s).square().sum(dim=0) for row in H] for H, s in zip(matrices, r, strict=True)]
            columns.append(hutchinson(torch.stack([torch.stack(each, dim=1) for each in norms]).detach().numpy()))
        value, error = symmetrize(*(np.array(each).T for each in zip(*columns, strict=True)))
        inside.append(np.abs(value - exact) <= 1.96 * error)
    assert 0.9 <= np.mean(inside) <= 0.97
    assert 0.9 <= np.mean([np.diagonal(each) for each in inside]) <= 0.97


def test_a_second_stage_reaches_the_error_that_is_asked_for() -> None:
    model, x = wide(2)
    options = {"matrix": "hessian", **PLAIN}
    exact, found = (hessdiag.diagnose(model, x, **options, **o) for o in ({"method": "exact"}, {"rtol": 0.1}))
    for known, one in zip(exact.weights, found.weights, strict=True):
        assert one.ended == "rtol"
        assert one.products > probes_for(2)
        assert abs(one.avg_sq_singular_value - known.avg_sq_singular_value) <= 4 * one.stderr


@pytest.mark.parametrize("memory", [100_000, 2_000])  # few probes at a time; few examples of the batch
@pytest.mark.parametrize("per", ["example", "batch"])
def test_probes_do_not_depend_on_the_chunks(per: str, memory: int) -> None:
    model, x = wide(2)
    problem = problem_of(model, x, "mse")
    settings = Settings(matrix="hessian", per=per, max_products=16)
    whole, pieces = (measure_curvature(problem, settings, MemoryBudget(2**30, chunk)) for chunk in (2**26, memory))
    np.testing.assert_allclose(pieces.frobenius_sq, whole.frobenius_sq, rtol=1e-12)
