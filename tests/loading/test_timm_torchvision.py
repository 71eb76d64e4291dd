"""timm and torchvision: what is said without them, and that the loading path never asks for pretrained weights."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.loading.model_spec import resolve_model

CALLS: list[dict] = []


def network(**options) -> nn.Module:
    CALLS.append(options)
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(12), nn.Linear(12, options.get("num_classes", 7)))
    module.pretrained_cfg = {"input_size": (3, 2, 2), "url": "https://example.invalid"}
    return module


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()
    stub = ModuleType("timm")
    stub.list_models = lambda: ["resnet18", "vit_tiny"]
    stub.create_model = lambda name, **options: network(name=name, **options)
    monkeypatch.setitem(sys.modules, "timm", stub)


@pytest.fixture
def torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    CALLS.clear()

    def resnet18(*, weights=None, progress=True, **options):
        return network(weights=weights, **options)

    def fcn(*, weights=None, weights_backbone="IMAGENET1K_V1", **options):
        return network(weights=weights, weights_backbone=weights_backbone, **options)

    builders = {"resnet18": resnet18, "fcn": fcn, "inception_v3": resnet18}
    stub = ModuleType("torchvision")
    stub.models = SimpleNamespace(list_models=lambda: list(builders), get_model_builder=builders.get)
    monkeypatch.setitem(sys.modules, "torchvision", stub)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_a_missing_library_is_named_with_its_installation(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    message = f"model '{library}:resnet18' needs {library}, which is not installed: pip install {library}$"
    with pytest.raises(HessdiagError, match=message):
        resolve_model(f"{library}:resnet18")


def test_timm_builds_without_weights(timm: None) -> None:
    built = resolve_model("timm:resnet18", arguments={"num_classes": 5}).build()
    assert CALLS == [{"name": "resnet18", "pretrained": False, "num_classes": 5}]
    assert built.input_size == (3, 2, 2)
    assert not built.module.training
    assert resolve_model("timm:resnet18", input_size=(3, 4, 4)).build().input_size == (3, 4, 4)


def test_torchvision_builds_without_weights_of_any_part(torchvision: None) -> None:
    built = resolve_model("torchvision:resnet18").build()
    assert built.input_size == (3, 224, 224)
    assert not built.module.training
    resolve_model("torchvision:fcn", arguments={"num_classes": 2}).build()
    assert CALLS == [{"weights": None}, {"weights": None, "weights_backbone": None, "num_classes": 2}]
    assert resolve_model("torchvision:inception_v3").build().input_size == (3, 299, 299)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("resnet81", {}, "has no model 'resnet81'; did you mean resnet18?"),
        ("zzz", {}, "list_models.. lists them"),
        ("hf-hub:someone/net", {}, "has no model"),
        ("", {}, "has no model"),
        ("resnet18", {"pretrained": True}, "--arg pretrained=…: hessdiag downloads nothing"),
        ("resnet18", {"weights": "DEFAULT"}, "--weights FILE"),
    ],
)
def test_wrong_names_and_downloads_are_refused(
    timm: None, torchvision: None, library: str, name: str, arguments, message: str
) -> None:
    with pytest.raises(HessdiagError, match=message):
        resolve_model(f"{library}:{name}", arguments=arguments)
    assert CALLS == []


def test_a_library_that_does_not_import_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "timm.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "timm", raising=False)
    with pytest.raises(HessdiagError, match="raised RuntimeError: operator torchvision::nms does not exist"):
        resolve_model("timm:resnet18")
