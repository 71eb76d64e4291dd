"""The scaling calculus against measurement on a zoo of architectures: γ predicted without data, beside medians.

    python scripts/zoo.py [SETUPS]

Every network is drawn SETUPS times (100 by default), under fan-in initialisation or, where it has biases, as PyTorch
builds it; the last two columns are the median of |log2(predicted/measured)| over its blocks for both moment models.
"""

import math
import sys
from statistics import median

from zoo_networks import NETWORKS

from hessdiag.calculus import PredictedVsMeasured, predict
from hessdiag.diagnosis.random_setups import RandomTrials
from hessdiag.loading.user_code import NamedFunction
from hessdiag.models.sources import factory_source

SETUPS = int(sys.argv[1]) if len(sys.argv) > 1 else 100
BATCH_SIZE = 16
errors = {"kernel": [], "paper": []}

for name, (make, size) in NETWORKS.items():
    init = "" if "biases" in name else "fan-in"
    source = factory_source(NamedFunction("model", name, make), arguments={}, input_size=size)
    trials = RandomTrials.of(source, init=init or "as built", batch_size=BATCH_SIZE, setups=SETUPS, signals=True)
    reports = trials.reports()
    line = f"{name:18}"
    for moments in ("kernel", "paper"):
        prediction = predict(make(), size, init=init or None, moments=moments)
        beside = PredictedVsMeasured.of(prediction, reports)
        found = {block.name: math.log2(beside.ratio(block)) for block in prediction.blocks}
        errors[moments] += found.values()
        worst = max(found, key=lambda block: abs(found[block]))
        line += f"  {moments} {beside.error():.3f} (worst {found[worst]:+.2f} {worst})"
    print(line, flush=True)

for moments, values in errors.items():
    print(f"all {len(values)} blocks, {moments}: {median(map(abs, values)):.3f}")
