"""The case study in its quick form: what is measured of which networks, saved and read back."""

import math
from pathlib import Path

import numpy as np
import pytest

from hessdiag.execution.work import Work
from hessdiag.experiments import resnet_figure as resnet
from hessdiag.experiments.resnet_figure import Conditioning
from hessdiag.loading.model_spec import resolve_model


@pytest.fixture(scope="module")
def measured() -> Conditioning:
    done: list[int] = []
    found = resnet.measure(quick=True, seed=0, work=Work(progress=done.append))
    assert len(done) == resnet.steps(quick=True)
    return found


def test_every_layer_of_every_network_is_there(measured: Conditioning) -> None:
    assert list(measured.panels) == [title for title, *_ in resnet.NETWORKS]
    for panel in measured.panels.values():
        assert panel.columns["gamma"].shape == (resnet.QUICK_SETUPS, 18)  # 17 convolutions and the last layer
        assert panel.names[-1] == "fc.weight"
        for key in ("gamma", "nu", "avg_sq_singular_value"):
            assert np.isfinite(panel.columns[key]).all()
            assert (panel.columns[key] > 0).all()


def test_preconditioning_balances_gamma_and_centring_is_needed_for_it(measured: Conditioning) -> None:
    spreads = {title: resnet.spread(resnet.typical(panel, "gamma")) for title, panel in measured.panels.items()}
    others = [title for title in spreads if not title.startswith("preconditioned") or title.endswith("biases 0")]
    assert len(others) == 4
    assert spreads["preconditioned"] < 10 < min(spreads[title] for title in others)


def test_its_signals_keep_their_size(measured: Conditioning) -> None:
    design = measured.design["preconditioned"]
    assert design == pytest.approx(math.sqrt(3 / 16) / math.sqrt(27))
    moments = measured.moments["preconditioned"].mean(axis=0)
    assert ((moments > design / 2) & (moments < 2 * design)).all()
    assert math.isnan(measured.design["RescaleNet"])


def test_files_hold_what_was_measured(measured: Conditioning, tmp_path: Path) -> None:
    paths = resnet.FIGURE.save(measured, tmp_path)
    assert [path.name for path in paths] == ["resnet.json", "resnet.png", "resnet.svg"]
    again = Conditioning.from_json(paths[0])
    assert resnet.summary(again) == resnet.summary(measured)


def test_only_weights_are_measured() -> None:
    module = resnet.weights_only(resolve_model("rescalenet14")).build().module
    assert all(p.requires_grad == (p.dim() > 1) for p in module.parameters())
