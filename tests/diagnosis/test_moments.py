"""Gradients that are nothing but rounding. What moments are: test_diagnose.py."""

import json
import math

import pytest
import torch
from torch import nn

from hessdiag import diagnose


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_gradient_that_a_normalisation_subtracts_is_zero(dtype: torch.dtype, mode: str) -> None:
    model = nn.Sequential(nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3)).to(dtype)
    report = diagnose(model, torch.randn(6, 2, 6, dtype=dtype), torch.randint(3, (6,)), mode=mode)
    first, *others = report["0.bias"], *(block for block in report if block.name != "0.bias")
    none = [first.nu == 0, first.avg_sq_singular_value == 0, math.isnan(first.ratio), math.isnan(first.relative_ratio)]
    assert set(none) == {mode == "train"}  # statistics that are fixed subtract nothing
    assert first.gamma > 0
    assert all(0 < block.ratio < 1e6 and block.nu > 0 for block in others)
    assert (json.loads(report.to_json())["blocks"][1]["ratio"] is None) == (mode == "train")
    assert ("0.bias: its gradient is 0 up to rounding" in report.text("whole")) == (mode == "train")
