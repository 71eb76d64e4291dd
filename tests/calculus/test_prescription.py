import json
import math
from statistics import median

import pytest
import torch
from torch import nn
from zoo_networks import NETWORKS

import hessdiag
from hessdiag import init
from hessdiag.calculus import apply_prescription, predict, prescribe
from hessdiag.errors import HessdiagError
from hessdiag.models.mlp import mlp
from hessdiag.results.numbers import spread
from hessdiag.scaling import kernel_correction
from tests.networks import PLAIN, Tied

SETUPS = 16


def _measured_spread(make, size, prescription=None):
    """Spread of the median γ over random set-ups, prescribed or under fan-in initialisation."""
    columns = []
    for seed in range(SETUPS):
        torch.manual_seed(seed)
        model = make()
        if prescription is None:
            init.apply(model, "fan-in")
        else:
            apply_prescription(model, prescription)
        report = hessdiag.diagnose(model, torch.randn(8, *size), seed=seed, **PLAIN)
        columns.append([block.gamma for block in report.weights])
    return spread([median(values) for values in zip(*columns, strict=True)])


@pytest.mark.parametrize(("name", "bound"), [("mixed kernels", 2.0), ("weighted residual", 3.0)])
def test_the_prescribed_network_is_balanced(name, bound):
    make, size = NETWORKS[name]
    assert _measured_spread(make, size) > 20
    assert _measured_spread(make, size, prescribe(make(), size)) < bound


@pytest.mark.parametrize("name", ["mlp with biases", "mixed kernels", "preact resnet-18", "vgg-like"])
def test_predicted_gammas_are_equal_and_moments_in_range(name):
    make, size = NETWORKS[name]
    prescription = prescribe(make(), size, output_sq=0.05)
    model = apply_prescription(make(), prescription, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():  # exactly the prescribed moments, without the noise of small layers
        for layer in prescription.layers:
            weight = model.get_submodule(layer.path).weight
            weight *= math.sqrt(layer.weight_sq / float(weight.square().mean()))
    prediction = predict(model, size)
    assert prediction.spread["gamma"] == pytest.approx(1, abs=1e-3)
    assert prediction.output_sq == pytest.approx(0.05, rel=1e-3)
    assert all(layer.out_sq == pytest.approx(1, rel=1e-6) for layer in prescription.layers[:-1])


def test_a_plain_mlp_gets_geometric_initialisation_with_a_correction():
    # α² E[W²] = 2 / n keeps the forward moments; γ is equal where E[W²] ∝ 1 / √(n n')
    widths = [32, 128, 64, 8]
    prescription = prescribe(mlp(widths, bias=False), (32,), moments="paper")
    constants = [
        layer.weight_sq * math.sqrt(math.prod(layer.shape)) for layer in prescription.layers
    ]  # fmt: skip
    assert constants == pytest.approx([constants[0]] * 3)


def test_kernels_get_the_papers_correction():
    # same width, kernels 1 and 3 with stride = kernel: multipliers differ by √3 (Section 6.2)
    model = nn.Sequential(
        nn.Conv2d(16, 16, 1, bias=False), nn.ReLU(), nn.Conv2d(16, 16, 3, 3, bias=False), nn.ReLU(),
        nn.Conv2d(16, 16, 1, bias=False), nn.Flatten(), nn.Linear(144, 4, bias=False),
    )  # fmt: skip
    _, second, third, _ = prescribe(model, (16, 9, 9), moments="paper").layers
    assert second.multiplier / third.multiplier == pytest.approx(kernel_correction(3))
    assert second.weight_sq / third.weight_sq == pytest.approx(1 / 3)


def test_the_code_does_what_apply_does():
    make, size = NETWORKS["mlp with biases"]
    prescription = prescribe(make(), size)
    model = make()
    torch.manual_seed(5)
    exec(prescription.to_code(), {"model": model})
    other = make()
    apply_prescription(other, prescription, generator=torch.Generator().manual_seed(5))
    for (name, a), (_, b) in zip(model.state_dict().items(), other.state_dict().items(), strict=True):
        assert torch.allclose(a, b, rtol=1e-4), name


def test_a_prescription_leaves_the_model_alone_and_prints():
    model = mlp([8, 6, 3])
    before = {name: value.clone() for name, value in model.state_dict().items()}
    prescription = prescribe(model, (8,))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert "spread of predicted γ" in repr(prescription)
    assert json.loads(prescription.to_json())["schema"] == "hessdiag.prescription/1"


def test_shared_weights_are_left_as_they_are():
    prescription = prescribe(Tied(), (4,))
    assert prescription.left_out == (("first.weight", "shared by several layers"),)
    assert [layer.name for layer in prescription.layers] == ["last.weight"]


def test_refusals():
    prescription = prescribe(mlp([8, 6, 3]), (8,))
    with pytest.raises(HessdiagError, match="not this model"):
        apply_prescription(mlp([8, 7, 3]), prescription)
    with pytest.raises(HessdiagError, match="output_sq"):
        prescribe(mlp([8, 6, 3]), (8,), output_sq=0.0)
    with pytest.raises(HessdiagError, match="cannot be predicted for any"):
        prescribe(nn.Sequential(nn.Linear(4, 4), nn.Softmax(1)), (4,))
