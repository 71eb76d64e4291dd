"""Are the layers of a network balanced? Curvature blocks, weight-gradient ratios and the scaling calculus.

Names are imported when they are first used, so that `hessdiag --help` answers without torch.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hessdiag import calculus, init, models, surgery
    from hessdiag.calculus.prediction import predict
    from hessdiag.diagnosis.compare import compare
    from hessdiag.diagnosis.describe import describe
    from hessdiag.diagnosis.diagnose import diagnose
    from hessdiag.diagnosis.learning_rates import learning_rates
    from hessdiag.diagnosis.prescribe import Prescription, prescribe
    from hessdiag.diagnosis.random_setups import check_init, measure_setups
    from hessdiag.errors import HessdiagError
    from hessdiag.results.comparison import Comparison
    from hessdiag.results.init_check import InitCheck
    from hessdiag.results.learning_rates import LearningRates
    from hessdiag.results.prediction import Prediction
    from hessdiag.results.report import BlockReport, Heatmap, Report
    from hessdiag.results.setups import Setups
    from hessdiag.training.monitor import Monitor
    from hessdiag.view import plots
    from hessdiag.view.html import to_html

__all__ = [
    "BlockReport",
    "Comparison",
    "Heatmap",
    "HessdiagError",
    "InitCheck",
    "LearningRates",
    "Monitor",
    "Prediction",
    "Prescription",
    "Report",
    "Setups",
    "calculus",
    "check_init",
    "compare",
    "describe",
    "diagnose",
    "init",
    "learning_rates",
    "measure_setups",
    "models",
    "plots",
    "predict",
    "prescribe",
    "surgery",
    "to_html",
]

_HOMES = {
    "BlockReport": "results.report",
    "Heatmap": "results.report",
    "Comparison": "results.comparison",
    "HessdiagError": "errors",
    "Prediction": "results.prediction",
    "InitCheck": "results.init_check",
    "LearningRates": "results.learning_rates",
    "Monitor": "training.monitor",
    "Report": "results.report",
    "Setups": "results.setups",
    "check_init": "diagnosis.random_setups",
    "compare": "diagnosis.compare",
    "describe": "diagnosis.describe",
    "diagnose": "diagnosis.diagnose",
    "learning_rates": "diagnosis.learning_rates",
    "measure_setups": "diagnosis.random_setups",
    "to_html": "view.html",
    "predict": "calculus.prediction",
    "prescribe": "diagnosis.prescribe",
    "Prescription": "diagnosis.prescribe",
}

_MODULES = {"plots": "view.plots"}  # public modules that live elsewhere
_MODELS = {  # public names of `hessdiag.models` that live elsewhere
    "ModelSource": "loading.models",
    "Network": "loading.models",
    "resolve_model": "loading.models",
}


def find_in_models(name: str) -> Any:
    """Return what `hessdiag.models` offers beside its networks."""
    if name in _MODELS:
        return getattr(import_module(f"hessdiag.{_MODELS[name]}"), name)
    raise AttributeError(f"module 'hessdiag.models' has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"hessdiag.{_HOMES[name]}"), name)
    if name == "__version__":
        from importlib.metadata import version

        return version("hessdiag")
    if name in __all__:
        return import_module(f"hessdiag.{_MODULES.get(name, name)}")
    raise AttributeError(f"module 'hessdiag' has no attribute {name!r}", name=name, obj=sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted(__all__)
