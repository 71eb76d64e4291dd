"""The same work by hessdiag and by its peers, in turns.

    pip install --no-deps backpack-for-pytorch curvlinops-for-pytorch pyhessian \\
        einops einconv unfoldNd linear_operator jaxtyping wadler-lindig opt-einsum
    OMP_NUM_THREADS=1 python scripts/benchmarks/benchmark_peers.py [--quick] [--only NAME ...] [--again]

Every turn also times gradients of the same model and batch, the unit of all times. What OUT/benchmark_peers.json holds
is not measured again without --again, so that a run that was stopped goes on. Items:

    exact-lenet, exact-mlp   ‖G_ij‖² of each example, exactly, all pairs of layers, beside BackPACK
    batch-diagonal           ‖G_ll‖² of the matrix of the whole batch, at an equal measured error of 5 %
    batch-map                ‖G_ij‖² of it, all pairs of layers, likewise
    whole-NAME               one whole diagnosis in a fresh process: time, and memory beside that of a gradient

All are of the Gauss-Newton matrix under cross-entropy. The measured error is the median of |estimate / exact − 1| over
layers, or pairs of layers, and seeds. Peers get as many products as bring it to 5 %, hessdiag the coarsest `rtol`.
hessdiag's time is that of `diagnose` without signals: with its checks, which peers do not make.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import peers
import torch
import whole_diagnosis
from alternating import GRADIENT, Times, alternate, machine, measured_once, seconds
from matplotlib.figure import Figure
from peers import Peer, Task
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

import hessdiag
from hessdiag import init
from hessdiag.models import StridedLeNet, mlp

Item = dict[str, Any]
ERROR = 0.05  # that everybody is asked for
TOLERANCES = (None, 0.4, 0.28, 0.2, 0.14, 0.1, 0.07, 0.05, 0.035, 0.025)  # of hessdiag, from its default
SEEDS = 24  # over which an error is measured before times are: of 4, one in several runs came by luck
POOL = 128  # single products of every layer, from which the number that is needed is told
MAX_PRODUCTS = 440
DRAWS = 300  # of a number of products from the pool
AT_ONCE = 16  # examples of the reference


@dataclass(frozen=True)
class Options:
    """What all items are told."""

    quick: bool
    turns: int
    device: torch.device


def lenet(size: int, device: torch.device) -> tuple[str, Task]:
    """LeNet as a chain of modules, which BackPACK asks for."""
    torch.manual_seed(0)
    source = init.apply(StridedLeNet(), "geometric")
    layers = (source.conv1, nn.ReLU(), source.conv2, nn.ReLU(), nn.Flatten())
    model = nn.Sequential(*layers, source.fc1, nn.ReLU(), source.fc2, nn.ReLU(), source.fc3).to(device)
    x, targets = torch.randn(size, 3, 32, 32), torch.randint(10, (size,))
    return f"LeNet, batch {size}", Task(model, x.to(device), targets.to(device))


def perceptron(size: int, device: torch.device) -> tuple[str, Task]:
    """Three layers; BackPACK's square roots of 1024 examples would take 8 GB."""
    torch.manual_seed(0)
    model = init.apply(mlp([784, 256, 128, 10], bias=False), "geometric").to(device)
    x, targets = torch.randn(size, 784), torch.randint(10, (size,))
    return f"MLP 784-256-128-10, batch {size}", Task(model, x.to(device), targets.to(device))


def norms(task: Task, **how: Any) -> Tensor:
    """hessdiag's map of all weights, (L, L)."""
    if "rtol" in how and how["rtol"] is None:
        del how["rtol"]
    how = {"loss": "cross-entropy", "signals": False, "progress": False, **how}
    return torch.from_numpy(hessdiag.diagnose(task.model, task.x, task.targets, **how).heatmap.frobenius_sq)


def reference(task: Task) -> Tensor:
    """The map of each example, averaged, in float64 from dense Jacobians by torch.func; nothing of hessdiag's."""
    names = [name for name, _ in task.model.named_parameters()]
    weights = [weight.detach().double() for weight in task.weights]

    def outputs(weights: list[Tensor], x: Tensor) -> Tensor:
        now = dict(zip(names, weights, strict=True))
        return functional_call(task.model, now, (x.unsqueeze(0),)).squeeze(0)  # type: ignore[no-any-return]

    total = torch.zeros(len(weights), len(weights), dtype=torch.float64, device=task.x.device)
    for x in task.x.double().split(AT_ONCE):
        p = torch.softmax(vmap(outputs, (None, 0))(weights, x), dim=1)
        S = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
        jacobians = vmap(jacrev(outputs), (None, 0))(weights, x)
        SK = [S @ J.flatten(2) @ J.flatten(2).transpose(1, 2) for J in jacobians]
        for i, left in enumerate(SK):
            total[i] += torch.stack([(left * right.transpose(1, 2)).sum() for right in SK])
    return (total / len(task.x)).cpu()


def exact_item(make: Callable[[int, torch.device], tuple[str, Task]], size: int, options: Options) -> Item:
    """The exact map of each example by hessdiag and by BackPACK."""
    title, task = make(size, options.device)
    found: dict[str, Tensor] = {}

    def ours() -> None:
        found["hessdiag"] = norms(task, method="exact")

    functions: dict[str, Callable[[], object]] = {GRADIENT: task.gradient, "hessdiag": ours}
    reason = peers.skipped("backpack")
    if not reason:
        from backpack import extend

        extended = extend(deepcopy(task.model))  # its hooks would slow down everybody's gradients
        loss = extend(nn.CrossEntropyLoss(reduction="sum"))

        def theirs() -> None:
            found["BackPACK"] = peers.backpack_map(extended, loss, task.x, task.targets).cpu()

        functions["BackPACK"] = theirs
    times = alternate(functions, turns=options.turns, device=options.device)
    known = reference(task)
    methods = times.record()
    for name, values in found.items():
        methods[name]["error"] = error_of([values / known])
    if reason:
        methods["BackPACK"] = {"skipped": reason}
    return _item(f"exact map, {title}", methods, times, options)


@cache
def known_batch(size: int, device: torch.device) -> tuple[str, Task, Tensor, Tensor]:
    """LeNet on a batch, its exact map (L, L), and in multiples of that `POOL` estimates (POOL, L, L) of one product."""
    title, task = lenet(size, device)
    exact = norms(task, per="batch", method="exact")
    pool = [peers.torch_func_map(task, [1] * len(exact), seed, 1) for seed in range(POOL)]
    return title, task, exact, torch.stack(pool) / exact


def batch_item(size: int, options: Options, *, diagonal: bool) -> Item:
    """Layers of the matrix of the batch, or all pairs, at an equal measured error."""
    title, task, exact, pool = known_batch(size, options.device)

    def entries(values: Tensor) -> Tensor:  # (..., L, L) or (L,) to (..., entries)
        if not diagonal:
            return values.flatten(-2)
        return values if values.dim() == 1 else values.diagonal(dim1=-2, dim2=-1)

    count = products_needed(entries(pool))
    products = [min(count, weight.numel()) for weight in task.weights]
    rtol = tolerance_needed(task, exact, entries)
    ratios: dict[str, list[Tensor]] = {}

    def keep(name: str, values: Tensor) -> None:
        known = exact.diagonal() if values.dim() == 1 else exact
        ratios.setdefault(name, []).append(entries(values.cpu() / known))

    def ours() -> None:
        keep("hessdiag", norms(task, per="batch", rtol=rtol, seed=100 + len(ratios.get("hessdiag", ()))))

    functions: dict[str, Callable[[], object]] = {GRADIENT: task.gradient, "hessdiag": ours}
    chosen: dict[str, int] = {}

    def run(peer: Peer) -> None:
        seed = 100 + len(ratios.get(peer.name, ()))
        keep(peer.name, peer.estimate(task, products, seed, chosen[peer.name]))

    left_out = {}
    for peer in peers.DIAGONALS if diagonal else peers.MAPS:
        if reason := peers.skipped(peer.package):
            left_out[peer.name] = {"skipped": reason}
        else:
            chosen[peer.name] = fastest_at_once(peer, task, options.device)
            functions[peer.name] = partial(run, peer)
    times = alternate(functions, turns=options.turns, device=options.device, warm_up=False)
    methods: Item = times.record()
    for name, found in ratios.items():
        methods[name] |= {"error": error_of(found)}
        methods[name] |= {"rtol": rtol} if name == "hessdiag" else {"products": products}
    work = f"batch {'diagonal' if diagonal else 'map'}, median error 5 %"
    return _item(f"{work}, {title}", methods | left_out, times, options)


def products_needed(entries: Tensor) -> int:
    """Return how many products bring the median error to 5 %, by drawing from (pool, entries) single estimates."""
    single = entries / entries.mean(dim=0)  # of the noise alone: the pool has an error of its own
    generator = torch.Generator().manual_seed(0)
    for products in range(2, MAX_PRODUCTS + 1, 2):
        drawn = single[torch.randint(len(single), (DRAWS, products), generator=generator)].mean(dim=1)
        if float((drawn - 1).abs().median()) <= ERROR:
            return products
    return MAX_PRODUCTS


def tolerance_needed(task: Task, exact: Tensor, entries: Callable[[Tensor], Tensor]) -> float | None:
    """Return the coarsest `rtol` at which hessdiag has the asked error."""
    for rtol in TOLERANCES:
        found = [entries(norms(task, per="batch", rtol=rtol, seed=seed) / exact) for seed in range(SEEDS)]
        if error_of(found)["median"] <= ERROR:
            return rtol
    return TOLERANCES[-1]


def fastest_at_once(peer: Peer, task: Task, device: torch.device) -> int:
    """Return how many products a call takes fastest, of those that are tried."""
    most, times = max(peers.AT_ONCE), {}
    for at_once in peers.AT_ONCE:
        number = len(task.weights)
        peer.estimate(task, [at_once] * number, 0, at_once)
        times[at_once] = seconds(partial(peer.estimate, task, [most] * number, 0, at_once), device)
    return min(times, key=times.__getitem__)


def error_of(ratios: Sequence[Tensor]) -> dict[str, float]:
    """Of |ratio − 1|: median over all entries of all estimates, RMS over estimates of the worst entry, and largest."""
    errors = (torch.stack(list(ratios)) - 1).abs()
    worst = errors.square().mean(dim=0).sqrt().max()
    return {"median": float(errors.median()), "worst": float(worst), "most": float(errors.max())}


def whole_item(name: str, options: Options) -> Item:
    """One whole diagnosis, and gradients alone, in a process each."""
    alone, whole = _in_process(name, "gradient", options), _in_process(name, "diagnose", options)
    times = Times({key: each["turns"] for key, each in whole["times"].items()})
    memory = {"at rest": alone["memory at rest"], "gradient": alone["memory"], "hessdiag": whole["memory"]}
    kept = ("blocks", "skipped", "method", "products", "outputs", "largest relative stderr")
    item = _item(f"whole diagnosis, {whole['title']}", times.record(), times, options)
    return item | {"memory": memory} | {key: whole[key] for key in kept}


def _in_process(name: str, what: str, options: Options) -> Item:
    turns = ["--turns", str(options.turns), "--device", options.device.type]
    script = str(Path(whole_diagnosis.__file__))
    command = [sys.executable, script, name, what, *turns, *(["--quick"] if options.quick else [])]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    found: Item = json.loads(ran.stdout.splitlines()[-1])
    return found


def _item(title: str, methods: Item, times: Times, options: Options) -> Item:
    others = [name for name in times.seconds if name not in (GRADIENT, "hessdiag")]
    return {
        "title": title,
        "machine": machine(options.device),
        "methods": methods,
        "times hessdiag's": {name: asdict(times.ratio(name, "hessdiag")) for name in others},
    }


def items_of(options: Options, single: Options) -> dict[str, Callable[[], Item]]:
    """Return all items by name; those of --quick are small."""
    big, middle, batch = (64, 32, 48) if options.quick else (1024, 128, 1024)
    return {
        "exact-lenet": partial(exact_item, lenet, big, options),
        "exact-mlp": partial(exact_item, perceptron, middle, options),
        "batch-diagonal": partial(batch_item, batch, options, diagonal=True),
        "batch-map": partial(batch_item, batch, options, diagonal=False),
        **{f"whole-{name}": partial(whole_item, name, single) for name in whole_diagnosis.CASES},
    }


def lines_of(items: Mapping[str, Item]) -> list[str]:
    """Write a line a method: gradients with their range, and the error."""
    lines = []
    for item in items.values():
        lines.append(item["title"])
        for name, method in item["methods"].items():
            if reason := method.get("skipped"):
                lines.append(f"  {name:28}{reason.split(' (')[0]}")
                continue
            cost, error = method["gradients"], method.get("error")
            told = f"  {name:28}{cost['median']:8.3g} ({cost['least']:.3g}-{cost['most']:.3g})"
            lines.append(told + (f"  error {100 * error['median']:.2g} %" if error else ""))
        if memory := item.get("memory"):
            lines.append(f"  memory, of a gradient's       {memory['hessdiag'] / memory['gradient']:.2f}×")
    return lines


def draw(items: Mapping[str, Item]) -> Figure:
    """Draw times in gradients, a row a method under the title of its item."""
    rows = [(item, name) for item in items.values() for name in item["methods"]
            if name != GRADIENT and "gradients" in item["methods"][name]]  # fmt: skip
    with plt.rc_context({"font.size": 8}):
        figure = Figure(layout="constrained", figsize=(8.3, 0.9 + 0.22 * len(rows)))
        figure.suptitle("Cost of the same work by hessdiag and its peers, with median errors", x=0.01, ha="left")
        axes = figure.subplots()
        for place, (item, name) in enumerate(rows):
            cost = item["methods"][name]["gradients"]
            colour = "#0173b2" if name == "hessdiag" else "#de8f05"
            error = item["methods"][name].get("error", {}).get("median")
            error = "" if error is None else f", error {error:.0e}"
            axes.plot([cost["least"], cost["most"]], [place] * 2, color=colour)
            axes.plot(cost["median"], place, "o", color=colour, markersize=5)
            axes.annotate(f"{cost['median']:.3g}{error}", (cost["most"], place), (6, -3), textcoords="offset points")
        axes.set_yticks(range(len(rows)), [f"{item['title']}: {name}" for item, name in rows])
        axes.set(
            xscale="log", xlim=(1, 4000), ylim=(len(rows) - 0.4, -0.6), xlabel="gradients of the same model and batch"
        )
        axes.grid(axis="x", alpha=0.5)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small networks, kept as benchmark_peers_quick")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="items to measure; by default all")
    parser.add_argument("--again", action="store_true", help="also those that have been measured")
    parser.add_argument("--turns", type=int, help="by default 5; of whole diagnoses 1")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("figures"))
    asked = parser.parse_args()
    warnings.simplefilter("ignore")  # of the libraries
    device = torch.device(asked.device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    options = Options(asked.quick, asked.turns or (3 if asked.quick else 5), device)
    items = items_of(options, Options(asked.quick, asked.turns or 1, device))
    if unknown := set(asked.only or ()) - set(items):
        parser.error(f"no item {sorted(unknown)[0]!r}: choose from {', '.join(items)}")
    chosen = {name: run for name, run in items.items() if asked.only is None or name in asked.only}
    stem = asked.out / ("benchmark_peers_quick" if asked.quick else "benchmark_peers")
    held = measured_once(stem.with_suffix(".json"), "hessdiag.benchmark_peers/2", chosen, again=asked.again)
    print("\n".join(lines_of({name: held[name] for name in chosen if name in held})))
    figure = draw({name: held[name] for name in items if name in held and not name.startswith("whole")})
    for ending in (".png", ".svg"):
        figure.savefig(stem.with_suffix(ending), dpi=200)


if __name__ == "__main__":
    main()
