"""Networks with a known verdict: public bugs before and after their fix, and healthy ones that must stay unnamed.

They are cases of the corpus too (`enter`), on which rules were written.
"""

import sys
from fnmatch import translate
from functools import partial
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parents[3])]

from torch.nn.functional import cross_entropy, mse_loss  # noqa: E402

from strangers import data as drawn  # noqa: E402
from strangers.case import STRANGERS, Stranger, Task  # noqa: E402
from strangers.gallery.case import Batch, Case, Healthy, match  # noqa: E402
from strangers.gallery.cases import CASES  # noqa: E402
from strangers.gallery.healthy import HEALTHY  # noqa: E402

__all__ = ["CASES", "HEALTHY", "Batch", "Case", "Healthy", "enter", "match"]
WRITTEN = "gallery"


def enter() -> None:
    """Enter all of them among `STRANGERS`."""
    from strangers.gallery.apart import TABLES

    for kind, cases in TABLES.items():
        for case in cases:
            well = kind in ("healthy", "apart")
            if well and "repaired" in case.name:
                continue  # a twin of its case
            guilty = r"(?!)" if well else "|".join(translate(pattern) for pattern in case.guilty)
            name = f"{case.name} ({kind})"
            fault = "" if well else case.source or "see the name"
            STRANGERS[name] = Stranger(name, "", fault, guilty, r"(?!)", partial(_task, case, well), WRITTEN)


def _task(case: Any, well: bool, wrong: bool) -> Task:
    model = case.build() if well else case.build("before" if wrong else "after")
    inputs, targets = case.batch(seed=drawn.other)
    inputs = inputs / inputs.std() if case.name == "raw-inputs" and not wrong else inputs

    def loss() -> Any:
        y = model(**inputs) if isinstance(inputs, dict) else model(inputs)
        y = getattr(y, "logits", y)
        plain = case.loss == "mse"
        return mse_loss(y, targets) if plain else cross_entropy(y.flatten(0, -2), targets.flatten())

    return Task(model, (inputs, targets), loss, {"loss": case.loss, "mode": "eval"})
