"""Public functions called with the wrong thing: one sentence of one exception, and what to write instead."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import hessdiag
from hessdiag import calculus, init, models, plots, surgery

MODEL, X = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)), torch.randn(6, 4)
SMALL: dict[str, Any] = {"setups": 1, "batch_size": 2}


@pytest.fixture(scope="module")
def report() -> hessdiag.Report:
    return hessdiag.diagnose(MODEL, X)


OF_A_REPORT: list[tuple[Callable[[Any], Any], str]] = [
    (lambda report: plots.draw_heatmaps([report]), "a panel is a Report: .*draw a Report with draw_heatmap"),
    (plots.draw_heatmaps, "panels is a Report: pass a list of Setups"),
    (lambda report: plots.draw_heatmap([report]), "report is a list: pass the Report"),
    (lambda report: plots.draw_heatmap(report.heatmap), "report is a Heatmap: pass the Report"),
    (plots.draw_init_check, "check is a Report: pass what hessdiag.check_init returns"),
    (lambda report: plots.save(report, "figure"), "figure is a Report: draw one first"),
    (lambda report: plots.caption([report]), "a measurement is a list"),
    (hessdiag.Setups.collect, "one of the reports is a BlockReport: pass a list of reports"),
    (lambda report: hessdiag.Setups.collect([report.to_json()]), "one of the reports is a str: pass a list"),
    (lambda report: report.to_json(3.5), "path is of type float: name a file"),
]


@pytest.mark.parametrize(("call", "message"), OF_A_REPORT)
def test_a_report_where_something_else_belongs(call, message: str, report: hessdiag.Report) -> None:
    refuse(lambda: call(report), message)


def check(**options: Any) -> Callable[[], Any]:
    return lambda: hessdiag.check_init("fan-in", **({"model": "mlp:3-3-2"} | SMALL | options))


def measure(source: Any = "mlp:4-3-2", **options: Any) -> Callable[[], Any]:
    return lambda: hessdiag.measure_setups(source, **(SMALL | options))


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (measure(MODEL), "model is a network that is already built: pass a function"),
    (measure(None), "model is None: pass a name such as 'lenet'"),
    (measure(setups="3"), "setups '3': pass at least 1"),
    (measure(batch_size=2.5), "batch_size 2.5: pass at least 1, a whole number"),
    (measure(dtype="float16"), "dtype 'float16': use float32 or float64"),
    (measure(device="gpu"), "device 'gpu': use cpu or cuda"),
    (measure(init=None), "init is None: pass a name such as 'fan-in'"),
    (measure(max_memory="lots"), "max_memory 'lots'"), (check(model=None), "model is None: pass a name"),
    (check(against=None), "against is None: pass a list"),
    (check(setups="1"), "setups '1': pass at least 1, a whole number"),
    (check(arguments=["bias=1"]), "arguments is a list: pass a dict"),
    (check(input_size="3,3"), "input_size '3,3': pass the shape of one example"),
    (lambda: calculus.predict("lenet", (3, 32, 32)), "model is a str: pass a torch.nn.Module"),  # type: ignore[arg-type]
    (lambda: calculus.predict(nn.Linear, X), "model is the class Linear"),  # type: ignore[arg-type]
    (lambda: calculus.predict(MODEL, X.numpy()), "inputs are a ndarray: pass the shape of one example"),
    (lambda: calculus.predict(MODEL, "4"), "inputs are a str: pass the shape of one example"),
    (lambda: models.resolve_model(MODEL), "model is a network that is already built"),  # type: ignore[arg-type]
    (lambda: models.resolve_model("lenet", input_size="3,32,32"), "input_size '3,32,32'"),  # type: ignore[arg-type]
    (lambda: models.mlp("4-3"), "widths is a str: pass a list"),  # type: ignore[arg-type]
    (lambda: models.mlp([4, 2.5]), "width 2.5: pass at least 1"),  # type: ignore[list-item]
    (lambda: hessdiag.Report.from_json(None), "source is of type NoneType: pass JSON text or the name of a file"),  # type: ignore[arg-type]
    (lambda: init.apply("fan-in", MODEL), "model is a str"),  # type: ignore[arg-type]
    (lambda: init.apply(MODEL, None), "init is None"),  # type: ignore[arg-type]
    (lambda: init.apply(MODEL, "fan-in", generator=0), "generator is an int: pass torch.Generator"),  # type: ignore[arg-type]
    (lambda: surgery.insert_scale(nn.Linear, 2.0, before="0"), "model is the class Linear"),  # type: ignore[arg-type]
    (lambda: surgery.insert_scale(MODEL, "2", before="0"), "factor '2': pass a finite number"),  # type: ignore[arg-type]
    (lambda: surgery.insert_scale(MODEL, 2.0, before=MODEL[0]), "before is a Linear: pass the path"),  # type: ignore[arg-type]
    (lambda: surgery.undo("model"), "model is a str"),  # type: ignore[arg-type]
    (lambda: surgery.correct_kernels(None), "model is None"),  # type: ignore[arg-type]
    (lambda: surgery.normalise_output(MODEL, X, std="a"), "std 'a': pass a positive standard deviation"),  # type: ignore[arg-type]
    (lambda: hessdiag.diagnose(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)), torch.ones(1, 4), quick=True),
        "a batch normalisation in training needs more than one number a channel: pass several examples"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_the_wrong_thing_is_refused_in_one_sentence(call: Callable[[], Any], message: str) -> None:
    refuse(call, message)


def test_names_functions_and_types_stand_for_what_they_mean() -> None:
    """A name or a function for a source, the name of a type for the type, one initialisation for a list of them."""
    by_name, by_source = measure("mlp:4-3-2")(), measure(models.resolve_model("mlp:4-3-2"))()
    assert by_name.to_json() == by_source.to_json()
    for draw in (plots.draw_heatmap, plots.draw_layers):
        refuse(lambda draw=draw: draw(by_name), "report is a Setups: pass the Report of hessdiag.diagnose")
    assert measure(lambda: (nn.Linear(4, 2), 4))().names == ("weight",)
    assert measure(dtype="float64")().dtype == "float64"
    assert [scheme.init for scheme in check(against="fan-in")().schemes] == ["fan-in"]
    with pytest.raises(AttributeError, match="module 'hessdiag' has no attribute 'diagnos'") as caught:
        hessdiag.diagnos  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("diagnos", hessdiag)


def refuse(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(hessdiag.HessdiagError, match=f"^{message}") as refused:
        call()
    assert "\n" not in str(refused.value)
