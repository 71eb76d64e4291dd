"""Checks a PyTorch model before you train it, and names the layer to repair.

Names are imported when they are first used, so that `hessdiag --help` answers without torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hessdiag import calculus as calculus
    from hessdiag import init as init
    from hessdiag import models as models
    from hessdiag import surgery as surgery
    from hessdiag.calculus.prediction import predict as predict
    from hessdiag.diagnosis.compare import compare as compare
    from hessdiag.diagnosis.describe import describe as describe
    from hessdiag.diagnosis.diagnose import diagnose as diagnose
    from hessdiag.diagnosis.learning_rates import learning_rates as learning_rates
    from hessdiag.diagnosis.prescribe import Prescription as Prescription
    from hessdiag.diagnosis.prescribe import prescribe as prescribe
    from hessdiag.diagnosis.random_setups import check_init as check_init
    from hessdiag.diagnosis.random_setups import measure_setups as measure_setups
    from hessdiag.diagnosis.sharpness import operator as operator
    from hessdiag.diagnosis.sharpness import sharpness as sharpness
    from hessdiag.errors import HessdiagError as HessdiagError
    from hessdiag.results.comparison import Comparison as Comparison
    from hessdiag.results.learning_rates import LearningRates as LearningRates
    from hessdiag.results.prediction import Prediction as Prediction
    from hessdiag.results.report import BlockReport as BlockReport
    from hessdiag.results.report import Heatmap as Heatmap
    from hessdiag.results.report import Report as Report
    from hessdiag.results.setups import InitCheck as InitCheck
    from hessdiag.results.setups import Setups as Setups
    from hessdiag.results.sharpness import Sharpness as Sharpness
    from hessdiag.training.monitor import Monitor as Monitor
    from hessdiag.view import plots as plots
    from hessdiag.view.html import to_html as to_html

_HOMES = {
    "BlockReport": "results.report", "Heatmap": "results.report", "Comparison": "results.comparison",
    "HessdiagError": "errors", "Prediction": "results.prediction", "InitCheck": "results.setups",
    "LearningRates": "results.learning_rates", "Monitor": "training.monitor", "Report": "results.report",
    "Setups": "results.setups", "check_init": "diagnosis.random_setups", "compare": "diagnosis.compare",
    "describe": "diagnosis.describe", "diagnose": "diagnosis.diagnose", "learning_rates": "diagnosis.learning_rates",
    "operator": "diagnosis.sharpness", "sharpness": "diagnosis.sharpness", "Sharpness": "results.sharpness",
    "measure_setups": "diagnosis.random_setups", "to_html": "view.html", "predict": "calculus.prediction",
    "prescribe": "diagnosis.prescribe", "Prescription": "diagnosis.prescribe",
}  # fmt: skip

_MODULES = {"calculus": "calculus", "init": "init", "models": "models", "plots": "view.plots", "surgery": "surgery"}
__all__ = [*_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hessdiag.{_HOMES[name]}"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("hessdiag")
    if name in _MODULES:
        return import_module(f"hessdiag.{_MODULES[name]}")
    raise AttributeError(f"module 'hessdiag' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted(__all__)
