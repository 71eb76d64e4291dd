"""The exact 5 x 5 block map of LeNet, in multiples of one gradient of the same batch, beside BackPACK.

BackPACK gives the square root V of each example's Gauss-Newton matrix, (C, B, *weight) for every weight; the same map
is then ‖G_ij‖² = tr(V_i^T V_i V_j^T V_j). Runs alternate, so that a change of the machine's speed meets all alike.

    pip install --no-deps backpack-for-pytorch einops einconv unfoldNd
    python scripts/benchmark_exact.py
"""

import argparse
import statistics
from collections.abc import Callable
from copy import deepcopy

import torch
from alternating import seconds
from peers import backpack_map
from torch import Tensor, nn

from hessdiag import init
from hessdiag.curvature.exact import exact_per_example
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import CrossEntropy
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.memory import Memory
from hessdiag.models import StridedLeNet
from hessdiag.network.blocks import find_blocks
from hessdiag.network.shapes import measure_shapes


def sequential_lenet(source: StridedLeNet) -> nn.Module:
    """The same weights as the chain of modules that BackPACK asks for."""
    layers = (source.conv1, nn.ReLU(), source.conv2, nn.ReLU(), nn.Flatten())
    head = (source.fc1, nn.ReLU(), source.fc2, nn.ReLU(), source.fc3)
    return nn.Sequential(*layers, *head)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--without-backpack", action="store_true")
    options = parser.parse_args()
    device = torch.device(options.device)

    torch.manual_seed(0)
    model = init.apply(StridedLeNet(), "geometric").to(device)
    x = torch.randn(options.batch_size, 3, 32, 32, device=device)
    targets = torch.randint(10, (options.batch_size,), device=device)
    batch = Batch.of(x, targets)
    problem = Problem(model, batch, CrossEntropy(), find_blocks(model)[0])
    shape = measure_shapes(model, batch, problem.blocks)
    chunk = shape.chunk(shape.outputs, memory=Memory.of(None, device).chunk)
    weights = list(model.parameters())

    def gradient() -> object:
        return torch.autograd.grad(nn.functional.cross_entropy(model(x), targets), weights)

    def ours() -> Tensor:
        return torch.from_numpy(exact_per_example(problem, chunk=chunk).frobenius_sq)

    functions: dict[str, Callable[[], object]] = {"gradient": gradient, "hessdiag": ours}
    if not options.without_backpack:
        from backpack import extend

        copied = deepcopy(model)  # BackPACK's hooks would slow down everybody's gradients
        extended, loss = extend(sequential_lenet(copied)), extend(nn.CrossEntropyLoss(reduction="sum"))

        def theirs() -> Tensor:
            return backpack_map(extended, loss, x, targets)

        functions["BackPACK"] = theirs
        a, b = ours(), theirs().cpu()
        print(f"largest relative difference of the 25 values: {float(((a - b) / b).abs().max()):.1e}")
    times: dict[str, list[float]] = {name: [] for name in functions}
    for run in range(options.runs + 1):
        for name, function in functions.items():
            elapsed = seconds(function, device)
            if run:  # the first is a warm-up
                times[name].append(elapsed)
    base = statistics.median(times["gradient"])
    print(f"LeNet, batch {options.batch_size}, {device.type}, {torch.get_num_threads()} threads, {options.runs} runs")
    for name, values in times.items():
        ratios = sorted(v / g for v, g in zip(values, times["gradient"], strict=True))
        median = statistics.median(values)
        print(
            f"{name:10} median {median * 1e3:8.1f} ms = {median / base:6.1f} gradients"
            f" (run by run {ratios[0]:.1f}-{ratios[-1]:.1f})"
        )
    if "BackPACK" in times:
        pairs = [t / o for t, o in zip(times["BackPACK"], times["hessdiag"], strict=True)]
        print(f"BackPACK / hessdiag: {statistics.median(pairs):.1f} (run by run {min(pairs):.1f}-{max(pairs):.1f})")


if __name__ == "__main__":
    main()
