"""A random network is measured right, against dense rows, or refused: never wrong, and no other exception. 500 instead
of 15, and the refusals by their reasons: --hypothesis-profile=thorough --hypothesis-show-statistics
"""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import event, given
from torch import Tensor, nn

import hessdiag
from hessdiag.data.seeds import user_code
from hessdiag.derivatives.losses import LossFunction, RandomQuadratic
from hessdiag.network.torch_state import measuring
from tests.jacobians import Dense, LossOfExample, dense_ggn, dense_hessian
from tests.random_layers import MIXING
from tests.random_networks import RandomNetwork, random_networks
from tests.unchanged import unchanged

MAX_WEIGHTS = 150  # of a network whose Hessian is formed


def loss_and_targets(name: str, returned: Tensor) -> tuple[str | LossFunction, Tensor | None, LossOfExample]:
    """What `diagnose` is given, and the loss of one example written out; functions get what the model returned."""
    y = returned.unsqueeze(1) if returned.dim() == 1 else returned
    if name == "random-quadratic":
        R = RandomQuadratic.draw(y[0].numel(), seed=0, like=y).R
        return name, None, lambda z, b: z.flatten() @ R @ z.flatten()
    if name == "cross-entropy" and y.dim() > 1:
        last = y.dim() == 3  # (B, T, V)
        t = torch.randint(y.shape[-1 if last else 1], (len(y), *(y.shape[1:-1] if last else y.shape[2:])))
        classes = (lambda z: z.transpose(1, -1)) if last and t.shape[1:] != y.shape[2:] else (lambda z: z)
        return name, t, lambda z, b: F.cross_entropy(classes(z), t[b : b + 1])
    if name in ("mse", OPTIMUM):
        t = y.clone() if name == OPTIMUM else torch.randn_like(y)
        return "mse", t, lambda z, b: F.mse_loss(z, t[b : b + 1])
    if name == "huber":
        t = torch.randn_like(returned)
        return F.huber_loss, t, lambda z, b: F.huber_loss(z.view_as(t[b : b + 1]), t[b : b + 1])
    if name == "fourth power":
        return (lambda z, _: z.pow(4).sum() / len(z)), None, lambda z, b: z.pow(4).sum()
    return (lambda z, _: z.reshape(len(z), -1).logsumexp(1).mean()), None, lambda z, b: z.flatten(1).logsumexp(1).sum()


def reference(model: nn.Module, x: Tensor, names: list[str], loss: LossOfExample, network: RandomNetwork) -> Dense:
    """Dense rows of every example on its own; torch's batch normalisation of one example is wrong."""

    def call(b: int) -> Tensor:
        with user_code():
            y = model(x[b : b + 1])
        return y.unsqueeze(1) if y.dim() == 1 else y

    of = dense_ggn if matrix_of(network, model) == "ggn" else dense_hessian
    with measuring(model):
        return of(call, [model.get_parameter(name) for name in names], loss, examples=len(x), per=network.per)


def matrix_of(network: RandomNetwork, model: nn.Module) -> str:
    return network.matrix if sum(p.numel() for p in model.parameters()) <= MAX_WEIGHTS else "ggn"


def refusal(network: RandomNetwork) -> str:
    """Hold a network's report against dense rows; why it was refused, or nothing."""
    model, x = network.build()
    y = copy.deepcopy(model)(x).detach()  # of a copy: some change themselves
    loss, targets, plain = loss_and_targets(network.loss, y)
    matrix = matrix_of(network, model)
    try:
        options = {"loss": loss, "matrix": matrix, "per": network.per, "mode": "eval", "method": "exact"}
        with unchanged(model, x):
            report = hessdiag.diagnose(model, x, targets, **options)
    except hessdiag.HessdiagError as error:
        return str(error)
    names = [block.name for block in report.blocks]
    skipped = dict(report.skipped)
    for name, parameter in model.named_parameters():
        wanted = parameter.requires_grad and (parameter.dim() > 1 or parameter.numel() == 1)
        assert name in names or name in skipped or not wanted, f"{name} is left out"
    dense = reference(network.build()[0], x, names, plain, network)
    numel = float64([block.numel for block in report.blocks])
    found = dense.map.clone()
    order = [names.index(name) for name in report.heatmap.names]
    for i, row in zip(order, report.heatmap.frobenius_sq, strict=True):
        found[i, order] = torch.from_numpy(row)
    within(dense, found, names)
    diagonal = float64([block.avg_sq_singular_value for block in report.blocks]) * numel
    within(dense, found.diagonal_scatter(diagonal), names)
    gradient_sq = float64([block.nu * block.weight_sq for block in report.blocks]) * numel
    kept = ~gradient_sq.isnan()  # of parameters that are all zero
    atol = 1e-20 * float(dense.gradient_sq.max()) + 1e-24
    if network.loss == OPTIMUM:  # outputs less their targets are all rounding
        plainly = network.build()[0]
        alone = torch.cat([plainly(one) for one in x.split(1)]).detach()
        rounding = float((alone - y).square().sum() + 1e-31 * y.square().sum())
        atol += 100 * rounding * float(dense.map.diagonal().max()) ** 0.5
    torch.testing.assert_close(gradient_sq[kept], dense.gradient_sq[kept], rtol=1e-8, atol=atol)
    assert not any("\n" in why for why in skipped.values())
    return "; ".join(f"{name}: {why}" for name, why in skipped.items() if "its gradient is not" in why)


def within(dense: Dense, found: Tensor, names: list[str]) -> None:
    for i, j in (dense.error(found) > 1e-8).nonzero().tolist():
        pytest.fail(f"{names[i]} x {names[j]}: {found[i, j]:.9g}, not {dense.map[i, j]:.9g}")


def float64(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@given(random_networks())
def test_a_random_network_is_measured_right_or_refused(network: RandomNetwork) -> None:
    event(refusal(network).split(":")[0][:80] or "measured right")


OPTIMUM = "mse at its optimum"  # the gradient of the loss is zero, which a check must not rest on
FAILED_ONCE = (
    RandomNetwork(operations=("running_sum",), seed=55), RandomNetwork(operations=("previous_example",), seed=87),
    RandomNetwork(operations=("first_example",), seed=17), RandomNetwork(operations=("first_example_gates",), seed=9),
    RandomNetwork("sequence", ("recurrent_over_examples",), seed=3),
    *(RandomNetwork(operations=(name,), seed=seed, loss=OPTIMUM) for name, seed in (
        ("doubled_weight", 80), ("normalised_weight", 72), ("weight_used_twice", 64), ("weight_as_penalty", 21),
        ("never_called", 69), ("siamese", 1), ("reversed_and_back", 38))),
    *(RandomNetwork("image", (name,), seed=seed, loss=OPTIMUM) for name, seed in (
        ("slice_in_place", 95), ("linear_times_in_place", 67), ("linear_relu_in_place", 74))),
    RandomNetwork(operations=("weights_from_a_code",), seed=5, examples=3, loss=OPTIMUM),
    RandomNetwork("sequence", ("bias_of_positions",), seed=39, loss=OPTIMUM),
    RandomNetwork(operations=("spectrum", "sorted_and_back"), seed=17, examples=4),
    RandomNetwork(operations=("experts",), seed=80), RandomNetwork("image", ("convolution_padding_itself",), seed=59),
    RandomNetwork("image", ("convolution_standardised",), seed=34),
    RandomNetwork("image", ("convolution_of_one_image",), seed=68, examples=3, end="one number", loss="cross-entropy"),
    RandomNetwork("sequence", ("hypernetwork", "class_token", "weight_norm"), seed=11, matrix="hessian", loss=OPTIMUM),
    RandomNetwork(operations=("prelu",), seed=2, loss="huber", matrix="hessian"),
    RandomNetwork(operations=("weights_from_a_code", "prelu"), seed=79, end="one number"),
    RandomNetwork("tokens", ("prelu",), seed=2, examples=4, end="one number"),
    RandomNetwork(operations=("vmapped",), seed=33), RandomNetwork(operations=("pairs",), seed=33),
    RandomNetwork(operations=("linear_over_examples",), seed=33),
    RandomNetwork(operations=("linear_over_examples",), seed=74, examples=7, per="batch"),
    RandomNetwork("tokens", ("weight_in_a_list",), seed=41),
    RandomNetwork(operations=("weight_in_a_list", "one_row_of_the_weight"), seed=21),
    RandomNetwork(operations=("weight_in_a_list",), seed=19, end="zero head", matrix="hessian"),
    RandomNetwork("sequence", ("embedding_renormalised",), seed=31, matrix="hessian"),
    RandomNetwork("tokens", ("weight_kept_after_use", "linear_on_packed"), seed=55, matrix="hessian"),
    RandomNetwork(operations=("zero_head_of_a_sum",), seed=4, end="zero head", matrix="hessian", per="batch"),
    RandomNetwork(operations=("complex_weight",), seed=88, matrix="hessian"),
    RandomNetwork(operations=("one_by_one",), seed=0, examples=3, end="zero head"),
    RandomNetwork(operations=("without_gradient",), seed=9, end="as it is", matrix="hessian", loss=OPTIMUM),
)  # fmt: skip
REFUSED = {*MIXING, "weight_in_a_list"}  # or skipped for a reason


@pytest.mark.parametrize("network", FAILED_ONCE, ids=str)
def test_networks_that_failed_once(network: RandomNetwork) -> None:
    assert bool(refusal(network)) == (not REFUSED.isdisjoint(network.operations))
