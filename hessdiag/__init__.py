"""Are the layers of a network balanced? Curvature blocks, weight-gradient ratios and the scaling calculus.

Names are imported when they are first used, so that `hessdiag --help` answers without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hessdiag import calculus, init, models, plots, surgery, verdict
    from hessdiag.calculus.prediction import Prediction, predict
    from hessdiag.checking.measurement import check_init
    from hessdiag.checking.result import InitCheck
    from hessdiag.description import describe
    from hessdiag.diagnosis import diagnose
    from hessdiag.errors import HessdiagError
    from hessdiag.report import BlockReport, Heatmap, Report
    from hessdiag.setups import Setups
    from hessdiag.study import measure_setups

__all__ = [
    "BlockReport",
    "Heatmap",
    "HessdiagError",
    "InitCheck",
    "Prediction",
    "Report",
    "Setups",
    "calculus",
    "check_init",
    "describe",
    "diagnose",
    "init",
    "measure_setups",
    "models",
    "plots",
    "predict",
    "surgery",
    "verdict",
]

_HOMES = {
    "BlockReport": "report",
    "Heatmap": "report",
    "HessdiagError": "errors",
    "Prediction": "calculus.prediction",
    "InitCheck": "checking.result",
    "Report": "report",
    "Setups": "setups",
    "check_init": "checking.measurement",
    "describe": "description",
    "diagnose": "diagnosis",
    "measure_setups": "study",
    "predict": "calculus.prediction",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hessdiag.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"hessdiag.{name}")
    raise AttributeError(f"module 'hessdiag' has no attribute {name!r}{_elsewhere(name)}")


def _elsewhere(name: str) -> str:
    """Where else in the package a public name is, or which one resembles it; empty for a private name."""
    if name.startswith("_"):  # asked for by tools
        return ""
    from hessdiag.suggestions import did_you_mean

    if name.startswith("draw_"):
        return f": did you mean hessdiag.plots.{name}?"
    hint = did_you_mean(name, __all__)
    return f": {hint}" if hint else ""


def __dir__() -> list[str]:
    return sorted(__all__)
