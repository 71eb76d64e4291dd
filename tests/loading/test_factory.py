"""Networks from functions, classes, and built-in names; one call a network."""

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.loading.model_spec import resolve_model
from hessdiag.loading.prepare import prepare

SOURCE = """
import torch
from torch import nn
CALLS = []
def pair(width=5):
    CALLS.append(width)
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2)), (4,)
def integer(): return nn.Linear(3, 2), 3
class Net(nn.Module):
    input_size = [2, 4]
    def __init__(self, classes: int = 3):
        super().__init__()
        self.layer = nn.Linear(8, classes)
    def forward(self, x): return self.layer(x.flatten(1))
def silent(): return nn.Linear(4, 2)
def odd():
    module = nn.Linear(4, 2)
    module.input_size = "four"
    return module
def tokens(): return nn.Sequential(nn.Embedding(5, 4), nn.Flatten(), nn.Linear(8, 2))
def nothing(): return None
def tensor(): return torch.ones(2)
def a_class(): return Net
def bad_size(): return nn.Linear(4, 2), "4"
def zero_size(): return nn.Linear(4, 2), (0, 4)
def three(): return nn.Linear(4, 2), (4,), 1
def lazy(): return nn.LazyLinear(2), (4,)
def meta(): return nn.Linear(4, 2, device="meta"), (4,)
def raises(): raise ValueError("depth must be even")
built = nn.Linear(4, 2)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(SOURCE)
    return f"{tmp_path}/nets.py"


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("pair", {}, (4,)),
        ("pair", {"arguments": {"width": 9}}, (4,)),
        ("pair", {"input_size": (2, 4)}, (2, 4)),
        ("integer", {}, (3,)),
        ("Net", {}, (2, 4)),
        ("Net", {"input_size": (8,), "arguments": {"classes": 2}}, (8,)),
        ("silent", {"input_size": (4,)}, (4,)),
        ("silent", {}, None),
        ("odd", {}, None),
    ],
)
def test_the_input_size_is_the_one_asked_for_or_returned_or_an_attribute(file: str, name: str, options, size) -> None:
    source = resolve_model(f"{file}:{name}", **options)
    network = source.build()
    assert network.input_size == size
    assert source.name == f"{file}:{name}"
    for value in options.get("arguments", {}).values():
        assert value in {extent for p in network.module.parameters() for extent in p.shape}


def test_a_factory_runs_once_for_each_network(file: str) -> None:
    source = resolve_model(f"{file}:pair")
    calls = next(m for n, m in sys.modules.items() if n.startswith("nets_") and m.__file__ == file).CALLS
    assert calls == []
    for loss in ("random-quadratic", "cross-entropy", "mse"):
        prepare(source, batch_size=3, loss=loss)
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "returned a NoneType: return a torch.nn.Module, or .module, input_size."),
        ("tensor", "returned a Tensor"),
        ("a_class", "returned the class Net"),
        ("bad_size", "returned the input size '4': return one such as"),
        ("zero_size", "returned the input size .0, 4."),
        ("three", "returned a tuple"),
        ("lazy", "lazy parameter 'weight': run the network once"),
        ("meta", "'weight' on the meta device"),
        ("raises", "raised ValueError: depth must be even .nets.py, line 29"),
    ],
)
def test_what_a_factory_may_not_return(file: str, name: str, message: str) -> None:
    source = resolve_model(f"{file}:{name}")
    with pytest.raises(HessdiagError, match=message):
        source.build()


@pytest.mark.parametrize(
    ("specification", "options", "message"),
    [
        ("lenett", {}, "did you mean lenet?"),
        ("torchvison", {}, "did you mean torchvision?"),
        ("mlp", {}, "write the widths"),
        ("timm", {}, "pip install timm|timm:NAME"),
        ("resnet", {}, "did you mean resnet50 or resnet14 or lenet. use lenet, mlp:784-384-64-10"),
        ("nets.py", {}, "add the function that builds the network, as in nets.py:build"),
        ("lenet:10", {}, "--arg classes=100"),
        ("lenet", {"arguments": {"clases": 3}}, "no argument 'clases': did you mean classes?"),
        ("mlp:4-3", {"arguments": {"norm": 3}}, "no argument 'norm': it takes bias, width"),
        ("mlp:4-3", {"in_channels": 3}, "--in-channels is for lenet"),
        ("lenet", {"in_channels": 0}, "at least 1 input channel"),
        ("mlp:4-" + "9" * 5000, {}, "write the widths"),
        ("mpl:4-3", {}, "no module 'mpl'; did you mean .*mlp"),
        ("torchvison:resnet18", {}, "did you mean torchvision"),
    ],
)
def test_wrong_specifications_are_answered_with_the_right_ones(specification: str, options, message: str) -> None:
    with pytest.raises(HessdiagError, match=message):
        resolve_model(specification, **options)


def test_a_built_network_is_no_factory(file: str) -> None:
    with pytest.raises(HessdiagError, match="already built: name a function that builds it"):
        resolve_model(f"{file}:built")


def test_built_in_networks_take_arguments() -> None:
    lenet = resolve_model("lenet", in_channels=1, arguments={"classes": 4}).build()
    assert lenet.input_size == (1, 32, 32)
    assert lenet.module(torch.ones(2, 1, 32, 32)).shape == (2, 4)
    perceptron = resolve_model("mlp:4-3-2", arguments={"bias": False}).build()
    assert [name for name, _ in perceptron.module.named_parameters()] == ["fc1.weight", "fc2.weight"]
    assert isinstance(perceptron.module, nn.Sequential)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("silent", {}, "does not say what it reads: pass --input-size"),
        ("silent", {"input_size": (5,)}, "cannot read inputs of shape 3×5 .RuntimeError: "),
        ("tokens", {"input_size": (2,)}, "cannot read inputs of shape 3×2"),
        ("silent", {"input_size": (10**9, 10**9, 10**9)}, "cannot draw 3 inputs"),
    ],
)
def test_inputs_that_do_not_fit_are_refused_before_measuring(file: str, name: str, options, message: str) -> None:
    with pytest.raises(HessdiagError, match=message):
        prepare(resolve_model(f"{file}:{name}", **options), batch_size=3)
