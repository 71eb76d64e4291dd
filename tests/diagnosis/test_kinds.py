"""Every kind of model is measured right, against dense rows, or refused in one line; and is left as it was."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hessdiag
from tests.kinds import KINDS, REFUSED, CubeOnce, Kind, own_function, rows
from tests.networks import BUILDERS
from tests.oracles import DENSE, equals_dense, frobenius_sq, quadratic_matrix
from tests.unchanged import unchanged


class Reader:
    """A kind's model as the oracles call it: any inputs in, one tensor out."""

    def __init__(self, model: nn.Module, kind: Kind) -> None:
        self.model, self.kind = model, kind
        self.get_parameter = model.get_parameter

    def __call__(self, inputs: Any) -> Tensor:
        if isinstance(inputs, Mapping):
            return self.kind.outputs(self.model(**inputs))
        return self.kind.outputs(self.model(*inputs) if isinstance(inputs, tuple) else self.model(inputs))


def example(inputs: Any, b: int) -> Any:
    """Example b as a batch of one."""
    if isinstance(inputs, Tensor):
        return inputs[b : b + 1]
    if isinstance(inputs, Mapping):
        return {key: example(value, b) for key, value in inputs.items()}
    return tuple(example(value, b) for value in inputs) if isinstance(inputs, tuple) else inputs


def tensors_of(inputs: Any) -> list[Tensor]:
    values = inputs.values() if isinstance(inputs, Mapping) else inputs if isinstance(inputs, tuple) else [inputs]
    return [value for value in values if isinstance(value, Tensor)]


def made(kind: Kind) -> tuple[nn.Module, Any, Tensor | None]:
    torch.manual_seed(0)
    return kind.make().double(), kind.inputs(), None if kind.targets is None else kind.targets()


def cross_entropy(y: Tensor, t: Tensor) -> Tensor:
    """Of one example, over the positions that count."""
    return F.cross_entropy(y.flatten(0, 1), t.flatten())


def dense(kind: Kind, model: nn.Module, inputs: Any, t: Tensor | None, names: list[str], matrix: str) -> Tensor:
    """(L, L) squared norms of each example's own matrix, averaged."""
    reader = Reader(model, kind)
    size = len(tensors_of(inputs)[0])
    outputs = reader(example(inputs, 0)).numel()
    R = quadratic_matrix(outputs)
    loss = (lambda y, _: (y.flatten() @ R) @ y.flatten()) if t is None else cross_entropy
    own = zip((example(inputs, b) for b in range(size)), [None] * size if t is None else t.split(1), strict=True)
    return torch.stack([frobenius_sq(DENSE[matrix](reader, *each, loss, names)) for each in own]).mean(dim=0)


@pytest.mark.parametrize("matrix", DENSE)
@pytest.mark.parametrize("name", [name for name in KINDS if name not in BUILDERS])  # those: test_exact.py
def test_every_kind_is_measured_right_and_left_as_it_was(name: str, matrix: str, monkeypatch) -> None:
    kind = KINDS[name]
    model, inputs, t = made(kind)
    loss = "random-quadratic" if t is None else "cross-entropy"
    options = {"loss": loss, "matrix": matrix, "mode": "eval", "method": "exact", "signals": matrix == "ggn"}
    with unchanged(model, *tensors_of(inputs)):
        report = hessdiag.diagnose(model, inputs, t, **options)
    names = [block.name for block in report.blocks]
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    every = [name for name, parameter in trained.items() if parameter.dim() > 1 or parameter.numel() == 1]
    assert set(every) <= set(names)
    # torch's fused kernel has wrong second derivatives: the reference takes the formula that it stands for.
    monkeypatch.setattr(torch, "_weight_norm", lambda v, g, dim: v * (g / torch.norm_except_dim(v, 2, dim)))
    expected = dense(kind, model, inputs, t, names, matrix)
    assert expected.max() > 0
    equals_dense(report, names, expected, rel=1e-8)


@pytest.mark.parametrize("options", [{}, {"matrix": "hessian"}, {"per": "batch"}], ids=str)
@pytest.mark.parametrize("name", REFUSED)
def test_every_other_kind_is_refused_in_one_line_and_left_as_it_was(name: str, options: dict[str, str]) -> None:
    kind, message = REFUSED[name]
    torch.manual_seed(0)
    model, inputs = kind.make(), kind.inputs()
    if name not in ("bfloat16", "float16", "two dtypes", "lazy"):
        model = model.double()
    lazy = any(map(nn.parameter.is_lazy, model.parameters()))
    as_it_was = nullcontext() if lazy else unchanged(model, *tensors_of(inputs))
    with as_it_was, pytest.raises(hessdiag.HessdiagError) as caught:
        hessdiag.diagnose(model, inputs, **options)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not lazy or all(map(nn.parameter.is_lazy, model.parameters()))


def test_a_function_that_differentiates_once_has_a_gauss_newton_matrix_and_no_hessian() -> None:
    once, twice = own_function(CubeOnce).double(), own_function().double()
    once.load_state_dict(twice.state_dict())
    x = rows()
    found, expected = (hessdiag.diagnose(model, x) for model in (once, twice))
    np.testing.assert_allclose(found.heatmap.frobenius_sq, expected.heatmap.frobenius_sq, rtol=1e-10)
    with unchanged(once, x), pytest.raises(hessdiag.HessdiagError, match="no way to a right hessian product") as caught:
        hessdiag.diagnose(once, x, matrix="hessian")
    assert "\n" not in str(caught.value)
    assert len(KINDS) + len(REFUSED) >= 80
