"""The size of signals: against what a plain loop over examples finds."""

import math

import pytest
import torch
from torch import nn

from hessdiag import diagnose
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import resolve_loss
from hessdiag.diagnosis.signal_growth import measure_signals
from tests.networks import build


@pytest.mark.parametrize("name", ["mlp", "inplace relu", "conv groups", "conv transpose", "residual", "multiplier"])
def test_moments_are_those_of_a_loop_over_examples(name: str) -> None:
    model, x = build(name, batch=19)  # more than a chunk
    found = measure_signals(model, Batch.of(x, None), seed=3)
    loss = resolve_loss("random-quadratic", y=model(x).detach(), targets=None, seed=3)
    forward, backward, outputs = [], [], []
    for i in range(len(x)):
        seen = {}
        handles = []
        for path in found.layers:

            def keep(module, args, y, path=path, seen=seen):
                seen[path] = y
                y.retain_grad()
                return y.clone()  # what follows may write in place

            handles.append(model.get_submodule(path).register_forward_hook(keep))
        y = model(x[i : i + 1])
        loss.value(y, None).sum().backward()
        for handle in handles:
            handle.remove()
        forward.append([float(seen[path].detach().square().mean()) for path in found.layers])
        backward.append([float(seen[path].grad.square().mean()) for path in found.layers])
        outputs.append(y.detach())
    assert found.forward_sq == pytest.approx(torch.tensor(forward).double().mean(0).tolist(), rel=1e-6)
    assert found.backward_sq == pytest.approx(torch.tensor(backward).double().mean(0).tolist(), rel=1e-6)
    y = torch.cat(outputs)
    assert found.output_sq == pytest.approx(float(y.square().mean()), rel=1e-10)
    assert found.output_variance == pytest.approx(float(y.var(unbiased=False)), rel=1e-10)


def test_the_model_is_left_as_it_was() -> None:
    model, x = build("mlp")
    measure_signals(model, Batch.of(x, None))
    assert all(p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("name", ["mlp", "conv padding"])
def test_the_balance_at_the_input_is_that_of_the_gammas(name: str) -> None:
    model, x = build(name)
    weight, bias = diagnose(model, x).blocks[:2]
    assert measure_signals(model, Batch.of(x, None)).bias_balance == pytest.approx(weight.gamma / bias.gamma, rel=1e-9)


def test_a_network_without_layers_has_no_balance() -> None:
    found = measure_signals(nn.Sequential(nn.PReLU()), Batch.of(torch.randn(3, 2), None))
    assert found.layers == ()
    assert math.isnan(found.bias_balance)
