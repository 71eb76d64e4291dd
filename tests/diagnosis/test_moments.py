"""The size of signals: against what a plain loop over examples finds."""

import json
import math

import pytest
import torch
from torch import nn

from hessdiag import diagnose
from hessdiag.derivatives.losses import resolve_loss
from tests.networks import build


@pytest.mark.parametrize("name", ["mlp", "inplace relu", "conv groups", "conv transpose", "residual", "multiplier"])
def test_moments_are_those_of_a_loop_over_examples(name: str) -> None:
    model, x = build(name, batch=19)
    report = diagnose(model, x, seed=3, max_memory="1MiB", signals=False)  # more than a chunk, of some
    layers = {block.name.removesuffix(".weight"): block for block in report.weights if block.name.endswith(".weight")}
    loss = resolve_loss("random-quadratic", y=model(x).detach(), targets=None, seed=3)
    forward, backward, outputs = [], [], []
    for i in range(len(x)):
        seen = {}
        handles = []
        for path in layers:

            def keep(module, args, y, path=path, seen=seen):
                seen[path] = y
                y.retain_grad()
                return y.clone()  # what follows may write in place

            handles.append(model.get_submodule(path).register_forward_hook(keep))
        y = model(x[i : i + 1])
        loss.value(y, None).sum().backward()
        for handle in handles:
            handle.remove()
        forward.append([float(seen[path].detach().square().mean()) for path in layers])
        backward.append([float(seen[path].grad.square().mean()) for path in layers])
        outputs.append(y.detach())
    found = [(block.out_sq, block.out_gradient_sq) for block in layers.values()]
    assert [f for f, _ in found] == pytest.approx(torch.tensor(forward).double().mean(0).tolist(), rel=1e-6)
    assert [b for _, b in found] == pytest.approx(torch.tensor(backward).double().mean(0).tolist(), rel=1e-6)
    y = torch.cat(outputs)
    assert report.output_sq == pytest.approx(float(y.square().mean()), rel=1e-10)
    assert report.output_variance == pytest.approx(float(y.var(unbiased=False)), rel=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_gradient_that_a_normalisation_subtracts_is_zero(dtype: torch.dtype, mode: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).to(dtype)
    report = diagnose(model, torch.randn(6, 2, 6, dtype=dtype), torch.randint(3, (6,)), mode=mode)
    first, *others = report["0.bias"], *(block for block in report if block.name != "0.bias")
    none = [first.nu == 0, first.avg_sq_singular_value == 0, math.isnan(first.ratio), math.isnan(first.relative_ratio)]
    assert set(none) == {mode == "train"}  # statistics that are fixed subtract nothing
    assert first.gamma > 0
    assert all(0 < block.ratio < 1e6 and block.nu > 0 for block in others)
    assert (json.loads(report.to_json())["blocks"][1]["ratio"] is None) == (mode == "train")
    assert ("0.bias: its gradient is 0 up to rounding" in report.text("whole")) == (mode == "train")
