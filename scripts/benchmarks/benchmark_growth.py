"""How costs grow with batch size, outputs, blocks, width and tokens: exponents, with their standard errors.

    OMP_NUM_THREADS=1 python scripts/benchmarks/benchmark_growth.py [--quick] [--only NAME ...] [--again]

Every turn goes over all sizes of a family and times a gradient, the map of all blocks, and a whole diagnosis. Exponents
are slopes of least squares through the logarithms of the medians: of seconds, and of gradients, which is what is left
beyond the gradient's own growth. What OUT/growth.json holds is not measured again without --again.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from alternating import GRADIENT, Times, alternate, machine, measured_once
from growth_networks import FAMILIES, Growing
from matplotlib.figure import Figure
from peers import Task

import hessdiag

Item = dict[str, Any]
NAMES = (GRADIENT, "map", "whole")
ALLOWED = 0.2  # beyond the gradient's own growth, with the number of blocks


@dataclass(frozen=True)
class Exponent:
    """The slope of a line through logarithms, and its standard error."""

    value: float
    stderr: float

    @classmethod
    def fit(cls, sizes: Sequence[float], values: Sequence[float]) -> Exponent:
        """By least squares, from three points or more.

        >>> Exponent.fit([1, 2, 4, 8], [3.0, 12.0, 48.0, 192.0])
        Exponent(value=2.0, stderr=0.0)
        """
        x, y = ([math.log2(each) for each in these] for these in (sizes, values))
        center = statistics.fmean(x)
        squares = sum((a - center) ** 2 for a in x)
        slope, offset = statistics.linear_regression(x, y)
        left = sum((b - slope * a - offset) ** 2 for a, b in zip(x, y, strict=True))
        return cls(round(slope, 12), round(math.sqrt(left / (len(x) - 2) / squares), 12))

    def __str__(self) -> str:
        return f"{self.value:+.2f} ± {self.stderr:.2f}"


def measure(family: Growing, *, sizes: Sequence[int], turns: int, device: torch.device) -> Item:
    """Times of all sizes, and the exponents."""
    seconds: dict[int, dict[str, list[float]]] = {size: {name: [] for name in NAMES} for size in sizes}
    functions, products = {}, {}
    for size in sizes:
        functions[size], products[size] = _functions(family, size, device)
    for _ in range(turns):
        for size in sizes:
            times = alternate(functions[size], turns=1, device=device, warm_up=False)
            for name in NAMES:
                seconds[size][name] += times.seconds[name]
    spreads = {size: Times(each).record() for size, each in seconds.items()}
    record: Item = {"title": family.title, "machine": machine(device), "sizes": list(sizes)}
    for unit in ("seconds", "gradients"):
        shown = NAMES if unit == "seconds" else NAMES[1:]
        medians = {name: [spreads[size][name][unit]["median"] for size in sizes] for name in shown}
        fitted = {name: asdict(Exponent.fit(sizes, medians[name])) for name in shown}
        record[unit] = {"medians": medians, "exponents": fitted}
    record["products"] = [products[size] for size in sizes]
    return record | {"turns": {str(size): each for size, each in seconds.items()}}


def _functions(family: Growing, size: int, device: torch.device) -> tuple[dict[str, Callable[[], object]], int]:
    """What is timed, called once to warm up, and the products that the map took; 0 where it is exact."""
    torch.manual_seed(0)
    model, x, targets = family.build(size)
    task = Task(model.to(device), x.to(device), targets.to(device))
    diagnose = partial(
        hessdiag.diagnose, model, task.x, task.targets, loss="cross-entropy", per=family.per, progress=False
    )
    functions = {
        GRADIENT: task.gradient,
        "map": partial(diagnose, signals=False),
        "whole": diagnose,
    }
    return functions, max(block.products for block in diagnose().blocks)


def table_of(items: Mapping[str, Item]) -> str:
    """Exponents of all families: of seconds, and of gradients."""
    lines = [f"{'cost against':24}{'sizes':12}" + "".join(f"{name:>16}" for name in (*NAMES, *NAMES[1:]))]
    for item in items.values():
        cells = [Exponent(**item["seconds"]["exponents"][name]) for name in NAMES]
        beyond = [Exponent(**item["gradients"]["exponents"][name]) for name in NAMES[1:]]
        sizes = f"{item['sizes'][0]}-{item['sizes'][-1]}"
        lines.append(f"{item['title']:24}{sizes:12}" + "".join(f"{each!s:>16}" for each in (*cells, *beyond)))
    return "\n".join([*lines, "(the last two in gradients)", "", line_of(items)])


def line_of(items: Mapping[str, Item]) -> str:
    """One line that says what the exponents show."""
    found = {item["title"]: item["gradients"]["exponents"]["map"] for key, item in items.items() if "blocks" in key}
    if not found:
        return "Growth with the number of blocks was not measured."
    parts = ", ".join(f"{Exponent(**e)} ({title})" for title, e in found.items())
    over = [title for title, e in found.items() if e["value"] - 2 * e["stderr"] > ALLOWED]
    unsure = [title for title, e in found.items() if e["value"] > ALLOWED and title not in over]
    verdict = "; ".join(
        [f"more than {ALLOWED}: {' and '.join(over)}"] * bool(over)
        + [f"undecided: {' and '.join(unsure)}"] * bool(unsure)
        + [f"at most {ALLOWED}"] * (not over and not unsure)
    )
    return f"Beyond the gradient, the L × L map grows with L to the power {parts}; {verdict}"


def draw(items: Mapping[str, Item], line: str) -> Figure:
    """Draw gradients against size, a panel a family; slopes and their standard errors stand above it."""
    columns = min(4, len(items))
    rows = -(-len(items) // columns)
    figure = Figure(layout="constrained", figsize=(2.3 * columns, 2.1 * rows + 0.4))
    figure.suptitle(line, x=0.01, ha="left", fontsize=8, wrap=True)
    panels = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels[len(items) :]:
        axes.set_visible(False)
    for axes, item in zip(panels, items.values(), strict=False):
        for name, marker in (("map", "o"), ("whole", "s")):
            fitted = Exponent(**item["gradients"]["exponents"][name])
            values = item["gradients"]["medians"][name]
            axes.plot(item["sizes"], values, marker=marker, markersize=4, label=f"{name} {fitted}")
        axes.set_xscale("log", base=2)
        axes.set(yscale="log", ylabel="gradients")
        axes.set_title(item["title"], fontsize=8)
        axes.legend(fontsize=6)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four sizes, kept as growth_quick")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=list(FAMILIES))
    parser.add_argument("--again", action="store_true", help="also those that have been measured")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("figures"))
    asked = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    path = asked.out / f"growth{'_quick' if asked.quick else ''}.json"
    names = asked.only or list(FAMILIES)

    def run(family: Growing) -> Item:
        sizes = family.sizes[:4] if asked.quick else family.sizes
        return measure(family, sizes=sizes, turns=asked.turns, device=torch.device(asked.device))

    items = {name: partial(run, FAMILIES[name]) for name in names}
    held = measured_once(path, "hessdiag.growth/1", items, again=asked.again)
    shown: dict[str, Any] = {name: held[name] for name in FAMILIES if name in held}
    print(table_of(shown))
    for ending in (".png", ".svg"):
        draw(shown, line_of(shown)).savefig(path.with_suffix(ending), dpi=200)


if __name__ == "__main__":
    main()
