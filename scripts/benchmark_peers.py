"""The same work by hessdiag and by its peers, in turns, beside the floor that the arithmetic sets.

    pip install --no-deps backpack-for-pytorch curvlinops-for-pytorch pyhessian \\
        einops einconv unfoldNd linear_operator jaxtyping wadler-lindig opt-einsum
    OMP_NUM_THREADS=1 python scripts/benchmark_peers.py [--quick] [--only NAME ...] [--again] [--out figures]

Every turn also times gradients of the same model and batch, the unit of all times. What OUT/benchmark_peers.json holds
is not measured again without --again, so that a run that was stopped goes on. Items:

    exact-lenet, exact-mlp   ‖G_ij‖² of each example, exactly, all pairs of blocks, beside BackPACK
    batch-diagonal           ‖G_ll‖² of the matrix of the whole batch, at an equal measured error of 5 %
    batch-map                ‖G_ij‖² of it, all pairs of blocks, likewise
    …-worst                  the same at 5 % for every block, not for the median one
    whole-NAME               one whole diagnosis in a fresh process: time, and memory beside that of a gradient

All are of the Gauss-Newton matrix under cross-entropy. The measured error is the median of |estimate / exact − 1| over
blocks, or pairs of blocks, and seeds; or the RMS over seeds of the worst block or pair, which is what `rtol` speaks of.
Peers get as many products as bring it to 5 %, block by block where every block counts, hessdiag the coarsest `rtol`.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path

import peers
import torch
import whole_diagnosis
from alternating import GRADIENT, Times, alternate, seconds
from benchmark_figure import draw_peers
from benchmark_journal import BenchmarkJournal, Item, machine, run_items, table_of
from benchmark_subjects import Subject, lenet, perceptron
from floors import (
    Floor,
    batch_sketch,
    exact_batch_map,
    exact_map,
    example_sketch,
    layers_of,
    measure_peak,
    other_operations,
)
from hessdiag.derivatives.drawn_classes import DRAWS as CLASSES
from peers import Peer
from torch import Tensor, nn

from hessdiag.curvature.batch_cost import ROWS
from hessdiag.curvature.classes import may_draw_classes
from hessdiag.derivatives.losses import CrossEntropy
from hessdiag.derivatives.problem import Problem
from hessdiag.network.blocks import find_blocks
from hessdiag.network.shapes import measure_shapes
from hessdiag.plots.frame import save

ERROR = 0.05  # that everybody is asked for
TOLERANCES = (0.4, 0.28, 0.2, 0.14, 0.1, 0.07, 0.05, 0.035, 0.025)  # of hessdiag, from the coarsest
SEEDS = 24  # over which an error is measured before times are: of 4, one in several runs came by luck
POOL = 128  # single products of every block, from which the number that is needed is told
MAX_PRODUCTS = 440
DRAWS = 300  # of a number of products from the pool


@dataclass(frozen=True)
class Options:
    """What all items are told."""

    quick: bool
    turns: int
    device: torch.device


def exact_item(make: Callable[[int, torch.device], Subject], size: int, options: Options) -> Item:
    """The exact map of each example by hessdiag and by BackPACK."""
    subject = make(size, options.device)
    found: dict[str, Tensor] = {}

    def ours() -> None:
        found["hessdiag"] = subject.exact_map()

    functions: dict[str, Callable[[], object]] = {GRADIENT: subject.task.gradient, "hessdiag": ours}
    reason = peers.skipped("backpack")
    if not reason:
        from backpack import extend

        task = subject.task
        extended = extend(deepcopy(task.model))  # its hooks would slow down everybody's gradients
        loss = extend(nn.CrossEntropyLoss(reduction="sum"))

        def theirs() -> None:
            found["BackPACK"] = peers.backpack_map(extended, loss, task.x, task.targets).cpu()

        functions["BackPACK"] = theirs
    times = alternate(functions, turns=options.turns, device=options.device)
    reference = subject.reference()
    methods = times.record()
    for name, values in found.items():
        methods[name]["error"] = error_of([values / reference])
    if reason:
        methods["BackPACK"] = {"skipped": reason}
    layers = subject.layers
    floor = exact_map(layers, examples=size, outputs=9)  # columns of the softmax's root
    return _item(f"exact map, {subject.name}", methods, times, ("exact map", floor), options)


@dataclass(frozen=True)
class BatchWork:
    """What is asked of the matrix of a batch.

    Attributes:
        diagonal: whether the diagonal alone, else all pairs of blocks.
        worst: whether the RMS error of every block must come to 5 %, else the median over blocks and seeds.
    """

    diagonal: bool
    worst: bool

    def entries(self, values: Tensor) -> Tensor:
        """(..., L, L), or the diagonal (L,) alone, to what is asked for: (..., entries)."""
        if not self.diagonal:
            return values.flatten(-2)
        return values if values.dim() == 1 else values.diagonal(dim1=-2, dim2=-1)

    def error(self, ratios: Sequence[Tensor]) -> float:
        """The error that counts, of estimates in multiples of the truth."""
        return error_of([self.entries(each) for each in ratios])["worst" if self.worst else "median"]

    @property
    def title(self) -> str:
        """What is measured, and to what."""
        return f"batch {'diagonal' if self.diagonal else 'map'}, {'every' if self.worst else 'median'} error 5 %"


@cache
def known_batch(size: int, device: torch.device) -> tuple[Subject, Tensor, Tensor]:
    """LeNet on a batch, its exact map (L, L), and in multiples of that `POOL` estimates (POOL, L, L) of one product."""
    subject = lenet(size, device)
    exact = torch.from_numpy(subject.map(per="batch", method="exact").frobenius_sq)
    one = [1] * len(exact)
    return (
        subject,
        exact,
        torch.stack([peers.torch_func_map(subject.task, one, seed, 1) for seed in range(POOL)]) / exact,
    )


def batch_item(work: BatchWork, size: int, options: Options) -> Item:
    """Blocks of the matrix of the batch, at an equal measured error."""
    subject, exact, pool = known_batch(size, options.device)
    products = products_needed(work.entries(pool), pool, worst=work.worst)
    products = [min(count, weight.numel()) for count, weight in zip(products, subject.task.weights, strict=True)]
    rtol = tolerance_needed(subject, exact, work)
    ratios: dict[str, list[Tensor]] = {}
    spent, sketch = 0, (size, 0)

    def keep(name: str, values: Tensor) -> None:
        known = exact.diagonal() if values.dim() == 1 else exact
        ratios.setdefault(name, []).append(work.entries(values.cpu() / known))

    def ours() -> None:
        nonlocal spent, sketch
        found = subject.map(per="batch", rtol=rtol, seed=100 + len(ratios.get("hessdiag", ())))
        spent = max(block.products for block in found.diagonal.values())
        sketch = drawn(found.how, size)
        keep("hessdiag", torch.from_numpy(found.frobenius_sq))

    functions: dict[str, Callable[[], object]] = {GRADIENT: subject.task.gradient, "hessdiag": ours}
    chosen: dict[str, int] = {}

    def run(peer: Peer) -> None:
        seed = 100 + len(ratios.get(peer.name, ()))
        keep(peer.name, peer.estimate(subject.task, products, seed, chosen[peer.name]))

    left_out = {}
    for peer in peers.DIAGONALS if work.diagonal else peers.MAPS:
        if reason := peers.skipped(peer.package):
            left_out[peer.name] = {"skipped": reason}
        else:
            chosen[peer.name] = fastest_at_once(peer, subject, options.device)
            functions[peer.name] = partial(run, peer)
    times = alternate(functions, turns=options.turns, device=options.device, warm_up=False)
    methods: Item = times.record()
    for name, found in ratios.items():
        methods[name] |= {"error": error_of(found)}
        methods[name] |= {"rtol": rtol, "products": [spent]} if name == "hessdiag" else {"products": products}
    return _item(f"{work.title}, {subject.name}", methods | left_out, times, batch_floor(subject, sketch), options)


def batch_floor(subject: Subject, chosen: tuple[int, int]) -> tuple[str, Floor]:
    """The cheaper of the exact map and of a sketch from as many examples and directions of each as hessdiag took."""
    layers, size = subject.layers, subject.problem.batch.size
    examples, directions = chosen
    floors = {"exact map": exact_batch_map(layers, examples=size, outputs=10)}
    if directions:
        name = f"sketch, {directions} directions of {examples} examples"
        floors[name] = batch_sketch(layers, examples=examples, directions=directions, group=ROWS)
    return min(floors.items(), key=lambda each: each[1].operations)


def drawn(how: str, size: int) -> tuple[int, int]:
    """Examples, and directions of each, that a sketch says it took, pilots apart; no directions where it was none.

    >>> drawn("2 directions of each of 300 of the 1024 examples", 1024), drawn("all 10 directions of each example", 64)
    ((300, 2), (64, 10))
    >>> drawn("sketch: deflated sketches, a basis of 4 and 6 directions, median effective rank 1.4", 8)
    (8, 10)
    >>> drawn("exact: 2 outputs <= 128: Gram matrices in output space", 8)
    (8, 0)
    """
    told = re.search(r"(?:a basis of (\d+) and )?(\d+) directions(?: of each of (\d+))?", how)
    return (int(told[3] or size), int(told[1] or 0) + int(told[2])) if told else (size, 0)


def products_needed(entries: Tensor, pool: Tensor, *, worst: bool) -> list[int]:
    """Products of every block whose mean has the asked error.

    Of the worst block: v_jj / 0.05² of block j, or the largest of its pairs' v_ij / 0.05², with v the variances of
    estimates from one product of each. Of the median: the same number for all, found by drawing from the pool.

    Args:
        entries: (pool, entries) estimates from single products, in multiples of the truth, that are asked for.
        pool: (pool, L, L) all of them.
        worst: see `BatchWork`.
    """
    single = entries / entries.mean(dim=0)  # of the noise alone: the pool has an error of its own
    L = pool.shape[-1]
    if worst:
        variances = single.var(dim=0)
        largest = variances if len(variances) == L else variances.view(L, L).amax(dim=0)
        return [max(2, math.ceil(each / ERROR**2)) for each in largest.tolist()]
    generator = torch.Generator().manual_seed(0)
    for products in range(2, MAX_PRODUCTS + 1, 2):
        drawn = single[torch.randint(len(single), (DRAWS, products), generator=generator)].mean(dim=1)
        if float((drawn - 1).abs().median()) <= ERROR:
            return [products] * L
    return [MAX_PRODUCTS] * L


def tolerance_needed(subject: Subject, exact: Tensor, work: BatchWork) -> float:
    """The coarsest `rtol` at which hessdiag has the asked error."""
    for rtol in TOLERANCES:
        found = [torch.from_numpy(subject.map(per="batch", rtol=rtol, seed=s).frobenius_sq) for s in range(SEEDS)]
        if work.error([each / exact for each in found]) <= ERROR:
            return rtol
    return TOLERANCES[-1]


def fastest_at_once(peer: Peer, subject: Subject, device: torch.device) -> int:
    """How many products a call takes fastest, of those that are tried."""
    most = max(peers.AT_ONCE)
    times = {}
    for at_once in peers.AT_ONCE:
        number = len(subject.task.weights)
        peer.estimate(subject.task, [at_once] * number, 0, at_once)
        times[at_once] = seconds(partial(peer.estimate, subject.task, [most] * number, 0, at_once), device)
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
    torch.manual_seed(0)
    case = (whole_diagnosis.CASES[name][2] if options.quick else whole_diagnosis.CASES[name][1])()
    problem = Problem(case.model, case.batch, CrossEntropy(), find_blocks(case.model)[0])
    layers = layers_of(problem)
    q = drawn(whole["method"], whole["batch"])[1] or whole["outputs"] - 1  # columns of the softmax's root
    shape = measure_shapes(case.model, problem.batch, problem.blocks)
    classes = CLASSES if "plain sketches" in whole["method"] and may_draw_classes(problem, shape) else 0
    other = other_operations(case.model, case.batch, layers)
    floor = example_sketch(layers, other, examples=whole["batch"], directions=q, draws=classes)
    memory = {"at rest": alone["memory at rest"], "gradient": alone["memory"], "hessdiag": whole["memory"]}
    kept = ("blocks", "skipped", "method", "products", "outputs", "largest relative stderr")
    item = _item(f"whole diagnosis, {whole['title']}", times.record(), times, (f"map, {q} cotangents", floor), options)
    return item | {"memory": memory} | {key: whole[key] for key in kept}


def _in_process(name: str, what: str, options: Options) -> Item:
    script = Path(whole_diagnosis.__file__)
    turns = ["--turns", str(options.turns), "--device", options.device.type]
    command = [sys.executable, str(script), name, what, *turns, *(["--quick"] if options.quick else [])]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    found: Item = json.loads(ran.stdout.splitlines()[-1])
    return found


def _item(title: str, methods: Item, times: Times, floor: tuple[str, Floor], options: Options) -> Item:
    peak = measure_peak(options.device)
    others = [name for name in times.seconds if name not in (GRADIENT, "hessdiag")]
    return {
        "title": title,
        "machine": machine(options.device, peak),
        "methods": methods,
        "times hessdiag's": {name: asdict(times.ratio(name, "hessdiag")) for name in others},
        "floor": {"of": floor[0]} | floor[1].record(peak),
    }


def items_of(options: Options) -> dict[str, Callable[[], Item]]:
    """All items by name; those of --quick are small."""
    big, middle = (64, 32) if options.quick else (1024, 128)
    batch = 48 if options.quick else 1024
    whole: dict[str, Callable[[], Item]] = {
        f"whole-{name}": partial(whole_item, name, options) for name in whole_diagnosis.CASES
    }
    return {
        "exact-lenet": partial(exact_item, lenet, big, options),
        "exact-mlp": partial(exact_item, perceptron, middle, options),
        "batch-diagonal": partial(batch_item, BatchWork(diagonal=True, worst=False), batch, options),
        "batch-map": partial(batch_item, BatchWork(diagonal=False, worst=False), batch, options),
        "batch-diagonal-worst": partial(batch_item, BatchWork(diagonal=True, worst=True), batch, options),
        "batch-map-worst": partial(batch_item, BatchWork(diagonal=False, worst=True), batch, options),
    } | whole


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
    single = Options(asked.quick, asked.turns or 1, device)
    items = {name: items_of(single if name.startswith("whole") else options)[name] for name in items_of(options)}
    if unknown := set(asked.only or ()) - set(items):
        parser.error(f"no item {sorted(unknown)[0]!r}: choose from {', '.join(items)}")
    chosen = {name: run for name, run in items.items() if asked.only is None or name in asked.only}
    stem = asked.out / ("benchmark_peers_quick" if asked.quick else "benchmark_peers")
    journal = BenchmarkJournal(stem.with_suffix(".json"), "hessdiag.benchmark_peers/1")
    if asked.again:
        journal.forget(list(chosen))
    found = run_items(journal, chosen, lambda name: print(name, file=sys.stderr, flush=True))
    print(table_of(found))
    held = journal.items()
    save(draw_peers({name: held[name] for name in items if name in held}), stem)


if __name__ == "__main__":
    main()
