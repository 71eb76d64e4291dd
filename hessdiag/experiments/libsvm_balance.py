"""What hessdiag says of the networks of a data set before training, from their first minibatch.

How unequal σ² and γ of the weights are, and the learning rate along virtual steps.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import nn

from hessdiag.datasets.dataset import Dataset
from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.diagnosis.learning_rate_estimate import learning_rates
from hessdiag.execution.work import Result, Work, number
from hessdiag.experiments.libsvm_grid import make_network, one_thread, to_examples
from hessdiag.experiments.libsvm_settings import LibsvmSettings
from hessdiag.results.numbers import Array
from hessdiag.scale import Scale
from hessdiag.training.stacked import minibatches
from hessdiag.training.stacked_mlp import stack_networks

NETWORKS = 3  # of each scheme


@dataclass(frozen=True)
class Balance:
    """(schemes, networks) largest over smallest σ² and γ, and the predicted learning rate."""

    sigma_spread: Array
    gamma_spread: Array
    predicted_rate: Array


def measure_balance(dataset: Dataset, settings: LibsvmSettings, *, seed: int, device: str, work: Work) -> Balance:
    """Diagnose networks of every scheme as they begin training: their first minibatch, logits scaled, cross-entropy."""
    examples = to_examples(dataset, device)
    count = min(NETWORKS, settings.seeds)
    units = [(scheme, each) for scheme in settings.schemes for each in range(seed, seed + count)]

    def measure(unit: tuple[str, int]) -> Result:
        scheme, own_seed = unit
        batch = minibatches(len(dataset), settings.training, [own_seed])[0][0]
        inputs, targets = examples.rows(batch), examples.targets[batch.to(device)]
        network = make_network(dataset, scheme, own_seed).to(device)
        scale = stack_networks([network]).with_logit_std(settings.training.logit_std or 1.0, inputs.unsqueeze(0))
        model = nn.Sequential(network, Scale(float(scale.logit_scale))).to(device)
        with one_thread():
            report = diagnose(model, inputs, targets, loss="cross-entropy", seed=own_seed, progress=False)
            optimizer = settings.training.optimizer
            rates = learning_rates(model, inputs, targets, optimizers=[optimizer], seed=own_seed, progress=False)
        found = {
            "sigma": report.spread["avg_sq_singular_value"],
            "gamma": report.spread["gamma"],
            "rate": rates[optimizer].value,
        }
        return {key: np.asarray(value) for key, value in found.items()}

    found = work.each("start", units, measure, label=lambda unit: f"{unit[0]} seed {unit[1]}")
    shape = (len(settings.schemes), count)
    values = {key: np.array([number(each, key) for each in found]).reshape(shape) for key in ("sigma", "gamma", "rate")}
    return Balance(values["sigma"], values["gamma"], values["rate"])
