"""Are the layers of a network balanced? Curvature blocks, weight-gradient ratios and the scaling calculus.

Names are imported when they are first used, so that `hessdiag --help` answers without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hessdiag import calculus, init, models, plots, surgery
    from hessdiag.calculus.prediction import Prediction, predict
    from hessdiag.diagnosis.check_init import check_init
    from hessdiag.diagnosis.describe import describe
    from hessdiag.diagnosis.diagnose import diagnose
    from hessdiag.diagnosis.random_setups import measure_setups
    from hessdiag.errors import HessdiagError
    from hessdiag.results import verdict
    from hessdiag.results.init_check import InitCheck
    from hessdiag.results.report import BlockReport, Heatmap, Report
    from hessdiag.results.setups import Setups

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
    "BlockReport": "results.report",
    "Heatmap": "results.report",
    "HessdiagError": "errors",
    "Prediction": "calculus.prediction",
    "InitCheck": "results.init_check",
    "Report": "results.report",
    "Setups": "results.setups",
    "check_init": "diagnosis.check_init",
    "describe": "diagnosis.describe",
    "diagnose": "diagnosis.diagnose",
    "measure_setups": "diagnosis.random_setups",
    "predict": "calculus.prediction",
}

_MODULES = {"verdict": "results.verdict"}  # public modules that live elsewhere


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hessdiag.{_HOMES[name]}"), name)
    if name in __all__:
        return import_module(f"hessdiag.{_MODULES.get(name, name)}")
    raise AttributeError(f"module 'hessdiag' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
