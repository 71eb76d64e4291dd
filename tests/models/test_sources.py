"""Networks by everything that a user may type for MODEL; one call of the factory a network; nothing is downloaded."""

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.loading.prepare import prepare
from hessdiag.models import StridedLeNet
from hessdiag.models.sources import resolve_model

SOURCE = """
import torch
from torch import nn
CALLS = []
def pair(width=5):
    CALLS.append(width)
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2)), (4,)
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
def data(): return torch.ones(9), torch.ones(9)
def nothing(): return None
def a_class(): return Net
def bad_size(): return nn.Linear(4, 2), "4"
def zero_size(): return nn.Linear(4, 2), (0, 4)
def lazy(): return nn.LazyLinear(2), (4,)
def meta(): return nn.Linear(4, 2, device="meta"), (4,)
def raises(): raise ValueError("depth must be even")
def two(): return nn.Linear(4, 2), nn.Conv2d(1, 1, 1)
built = nn.Linear(4, 2)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "nets.py").write_text(SOURCE)
    return f"{tmp_path}/nets.py"


@pytest.mark.parametrize(("name", "options", "size"), [
    ("pair", {}, (4,)), ("pair", {"arguments": {"width": 9}}, (4,)),
    ("pair", {"input_size": (2, 4)}, (2, 4)), ("Net", {}, (2, 4)),
    ("Net", {"input_size": (8,), "arguments": {"classes": 2}}, (8,)), ("silent", {"input_size": (4,)}, (4,)),
    ("tokens", {"input_size": (2,)}, None), ("odd", {}, None),
])  # fmt: skip
def test_the_input_size_is_the_one_asked_for_or_returned_or_an_attribute(file: str, name: str, options, size) -> None:
    source = resolve_model(f"{file}:{name}", **options)
    network = source.build()
    assert (network.input_size, source.name) == (size, f"{file}:{name}")
    for value in options.get("arguments", {}).values():
        assert value in {extent for p in network.module.parameters() for extent in p.shape}


def test_a_factory_runs_once_for_each_network_and_names_take_arguments(file: str) -> None:
    source = resolve_model(f"{file}:pair")
    calls = next(m for n, m in sys.modules.items() if n.startswith("nets_") and m.__file__ == file).CALLS
    assert calls == []
    for loss in ("random-quadratic", "cross-entropy", "mse"):
        prepare(source, batch_size=3, loss=loss)
    assert len(calls) == 3
    for options, size, classes in (({}, (3, 32, 32), 10), ({"in_channels": 1, "classes": 4}, (1, 32, 32), 4)):
        lenet = resolve_model("lenet", arguments=options).build()
        assert isinstance(lenet.module, StridedLeNet)
        assert (lenet.input_size, lenet.module(torch.ones(2, *size)).shape) == (size, (2, classes))
    network = resolve_model("mlp:784-384-64-10", arguments={"bias": False, "width": 0.5}).build()
    assert network.input_size == (784,)
    assert [tuple(p.shape) for p in network.module.parameters()] == [(192, 784), (32, 192), (10, 32)]


@pytest.mark.parametrize(("name", "input_size", "message"), [
    ("data", None, "returned a Tensor: return a torch.nn.Module"),
    ("nothing", None, "returned None: return a torch.nn.Module, or .module, input_size."),
    ("a_class", None, "returned the class Net"),
    ("bad_size", None, "returned the input size '4': return one such as"),
    ("two", None, "returned the modules Linear and Conv2d: return one of them"),
    ("zero_size", None, "returned the input size .0, 4."),
    ("lazy", None, "parameter 'weight' has no shape yet: run the model once"),
    ("meta", None, "'weight' on the meta device"),
    ("raises", None, "raised ValueError: depth must be even .nets.py, line 27"),
    ("silent", None, "does not say the shape of its inputs: pass input_size=.3, 32, 32., say .--input-size 3,32,32."),
    ("silent", (5,), "cannot read inputs of shape 3×5 "),
])  # fmt: skip
def test_what_a_factory_may_not_return_and_inputs_that_do_not_fit(file: str, name: str, input_size, message) -> None:
    source = resolve_model(f"{file}:{name}", input_size=input_size)
    with pytest.raises(HessdiagError, match=message):
        prepare(source, batch_size=3)


@pytest.mark.parametrize(("specification", "options", "message"), [
    ("lenett", {}, "did you mean lenet?"),
    ("rescalenet", {}, "did you mean rescalenet50 or rescalenet14.* use lenet, mlp:784-384-64-10"),
    ("nets.py", {}, "unknown model 'nets.py': use lenet, .*./file.py:function"),
    ("mlp:4-3", {"arguments": {"norm": 3}}, r"\(\*, bias.* got an unexpected keyword argument 'norm'"),
    ("google/vit", {}, "hf:CONFIG.json, a configuration saved with save_pretrained .nothing is downloaded"),
    ("FILE:built", {"arguments": {"width": 2}}, "got an unexpected keyword argument 'width'"),
])  # fmt: skip
def test_wrong_specifications_are_answered_with_the_right_ones(file: str, specification: str, options, message) -> None:
    with pytest.raises(HessdiagError, match=message):
        resolve_model(specification.replace("FILE", file), **options)


@pytest.mark.parametrize("text", ["", "3", "3--2", "3-0", "3-2.5", "²-2", "4-" + "9" * 5000])
def test_widths_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(HessdiagError, match="write the widths as in mlp:784-384-64-10") as caught:
        resolve_model(f"mlp:{text}")
    assert repr(f"mlp:{text}") in str(caught.value)


CALLS: list[dict] = []


def network(**options) -> nn.Module:
    CALLS.append(options)
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, options.get("num_classes", 7)))
    module.pretrained_cfg = {"input_size": (3, 2, 2), "url": "https://example.invalid"}
    return module


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for timm and torchvision, which note how networks are built."""
    CALLS.clear()
    resnet18 = lambda *, weights=None, progress=True, **options: network(weights=weights, **options)  # noqa: E731

    def fcn(*, weights=None, weights_backbone="IMAGENET1K_V1", **options):
        return network(weights=weights, weights_backbone=weights_backbone, **options)

    builders = {"resnet18": resnet18, "fcn": fcn}
    timm, torchvision = ModuleType("timm"), ModuleType("torchvision")
    timm.list_models = lambda: ["resnet18", "vit_tiny"]
    timm.create_model = lambda name, **options: network(name=name, **options)
    torchvision.models = SimpleNamespace(list_models=lambda: list(builders), get_model_builder=builders.get)
    monkeypatch.setitem(sys.modules, "timm", timm)
    monkeypatch.setitem(sys.modules, "torchvision", torchvision)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_missing_library_is_named_with_its_installation(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = f"model '{library}:resnet18' needs {library}, which is not installed: pip install {library}$"
    with pytest.raises(HessdiagError, match=message):
        resolve_model(f"{library}:resnet18")


def test_libraries_build_without_weights_of_any_part(libraries: None) -> None:
    built = resolve_model("timm:resnet18", arguments={"num_classes": 5}).build()
    assert CALLS == [{"name": "resnet18", "pretrained": False, "num_classes": 5}]
    assert built.input_size == (3, 2, 2)
    assert resolve_model("timm:resnet18", input_size=(3, 4, 4)).build().input_size == (3, 4, 4)
    CALLS.clear()
    built = resolve_model("torchvision:resnet18").build()
    assert built.input_size == (3, 224, 224)
    resolve_model("torchvision:fcn", arguments={"num_classes": 2}).build()
    assert CALLS == [{"weights": None}, {"weights": None, "weights_backbone": None, "num_classes": 2}]


@pytest.mark.parametrize("library", ["timm", "torchvision"])
@pytest.mark.parametrize(("name", "arguments", "message"), [
    ("resnet81", {}, "has no model 'resnet81'; did you mean resnet18?"), ("zzz", {}, "list_models.. lists them"),
    ("resnet18", {"pretrained": True}, "argument 'pretrained': hessdiag downloads nothing"),
])  # fmt: skip
def test_wrong_names_and_downloads_are_refused(libraries: None, library: str, name: str, arguments, message) -> None:
    with pytest.raises(HessdiagError, match=message):
        resolve_model(f"{library}:{name}", arguments=arguments)
    assert CALLS == []


def test_a_library_that_does_not_import_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(HessdiagError, match="raised RuntimeError: operator torchvision::nms does not exist"):
        resolve_model("timm:resnet18")
