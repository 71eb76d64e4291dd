"""Compare the exact numbers of two versions of hessdiag on every network of the tests.

    python scripts/compare_numbers.py capture before.json    # in a checkout of the one
    python scripts/compare_numbers.py capture after.json     # in a checkout of the other
    python scripts/compare_numbers.py capture after.json cuda
    python scripts/compare_numbers.py compare before.json after.json

Each network is measured in float64 by method "exact", for the mean square and the random quadratic, the Gauss-Newton
matrix and the Hessian, by example and by batch. What is compared are all quantities of all blocks, the heatmap, the
blocks that are skipped, and what is refused.
"""

from __future__ import annotations

import inspect
import json
import math
import sys
import warnings
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path.cwd()))

QUANTITIES = ("gamma", "gamma_intrinsic", "gamma_curvature", "nu", "avg_sq_singular_value", "activation_scaling")
OPTIONS = [
    {"loss": loss, "matrix": matrix, "per": per}
    for loss, matrix, per in product(("mse", "random-quadratic"), ("ggn", "hessian"), ("example", "batch"))
]
RTOL = 1e-8


def capture(path: str, device: str = "cpu") -> None:
    """Measure all networks."""
    import torch
    from torch.utils._pytree import tree_map_only

    import hessdiag
    from tests.kinds import KINDS, REFUSED

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    known = inspect.signature(hessdiag.diagnose).parameters
    fixed: dict[str, Any] = {key: False for key in ("noise_scale", "learning_rates") if key in known}
    fixed |= {"mode": "eval"} if "mode" in known else {}
    found: dict[str, Any] = {}
    for name, kind in {**KINDS, **{f"refused: {name}": kind for name, (kind, _) in REFUSED.items()}}.items():
        for options in OPTIONS:
            torch.manual_seed(0)
            model = kind.make()
            model = model.double() if name in KINDS and not isinstance(model, torch.jit.ScriptModule) else model
            model = model if isinstance(model, torch.jit.ScriptModule) else model.to(device)
            inputs = tree_map_only(torch.Tensor, lambda value: value.to(device), kind.inputs())
            key = f"{name} | {' '.join(options.values())}"
            given: dict[str, Any] = {**options, "method": "exact", **fixed}
            try:
                targets = None
                if options["loss"] == "mse":
                    with torch.no_grad():
                        call = model.eval() if name in KINDS else model
                        args, named = (inputs, {}) if isinstance(inputs, tuple) else ((inputs,), {})
                        args, named = ((), inputs) if isinstance(inputs, dict) else (args, named)
                        y = kind.outputs(call(*args, **named))
                    targets = torch.zeros_like(y)
                report = hessdiag.diagnose(model, inputs, targets, **given)
            except Exception as error:  # what is refused is compared, too
                found[key] = {"refused": f"{type(error).__name__}: {error}"}
                continue
            found[key] = {
                "blocks": {b.name: [getattr(b, quantity) for quantity in QUANTITIES] for b in report.blocks},
                "heatmap": report.heatmap.frobenius_sq.tolist(),
                "skipped": sorted(name for name, _ in report.skipped),
            }
    Path(path).write_text(json.dumps(found), encoding="utf-8")


def differences(one: Any, other: Any) -> list[str]:
    """Say where two captures of one network differ."""
    if ("refused" in one) != ("refused" in other):
        return [f"{one.get('refused', 'measured')}  ->  {other.get('refused', 'measured')}"]
    if "refused" in one:
        return []
    said = []
    if one["skipped"] != other["skipped"] or sorted(one["blocks"]) != sorted(other["blocks"]):
        said.append(f"skipped {one['skipped']}  ->  {other['skipped']}")
    for name in one["blocks"].keys() & other["blocks"].keys():
        scale = max((abs(values[4] or 0) for values in one["blocks"].values()), default=0)
        for quantity, a, b in zip(QUANTITIES, one["blocks"][name], other["blocks"][name], strict=True):
            if not _same(a, b, scale if quantity == "avg_sq_singular_value" else 0):
                said.append(f"{name} {quantity} {a} -> {b}")
    flat = [[x for row in each["heatmap"] for x in row] for each in (one, other)]
    largest = max(map(abs, flat[0]), default=0)
    if len(flat[0]) == len(flat[1]) and not all(_same(a, b, largest) for a, b in zip(*flat, strict=True)):
        said.append("heatmap differs")
    return said


def _same(a: float | None, b: float | None, scale: float) -> bool:
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=RTOL, abs_tol=1e-12 * scale) or (math.isnan(a) and math.isnan(b))


def compare(before: str, after: str) -> int:
    """Print what differs; 1 where something does."""
    one, other = (json.loads(Path(path).read_text(encoding="utf-8")) for path in (before, after))
    different = 0
    for key in sorted(one.keys() | other.keys()):
        if key not in one or key not in other:
            print(f"{key}: only {'after' if key in other else 'before'}")
            continue
        if said := differences(one[key], other[key]):
            different += 1
            print(f"{key}: {'; '.join(said[:3])}")
    measured = sum("blocks" in each for each in other.values())
    print(f"{len(other)} measurements, {measured} not refused, {different} differ")
    return int(different > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["capture"]:
        capture(*sys.argv[2:])
    else:
        sys.exit(compare(*sys.argv[2:]))
