"""What `hessdiag.Monitor` costs: multiples of a plain training step, and its share of the time at its defaults.

Steps with and without a measurement alternate, so that a change of the machine's speed meets both alike. A measured
step that takes m plain steps costs (m − 1) / interval of the training time where one in `interval` steps is measured,
which is how Cockpit (arXiv 2102.06604) states its cost. Then two trainings alternate in windows of some steps, one of
them with a monitor at its defaults: its share is the ratio of their times, from the second measurement on.

    python scripts/benchmarks/benchmark_monitor.py alexnet gpt --json figures/monitor_cost.json
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hessdiag import Monitor
from hessdiag.models import StridedAlexNet

INTERVALS = (10, 100, 1000)


class SmallGpt(nn.Module):
    """Token indices (B, T) to logits (B, T, V): four layers of width 128."""

    def __init__(self) -> None:
        from transformers import GPT2Config, GPT2LMHeadModel

        super().__init__()
        sizes = {"vocab_size": 1000, "n_positions": 64, "n_embd": 128, "n_layer": 4, "n_head": 4}
        self.gpt = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=0, use_cache=False))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.gpt(tokens).logits


@dataclass(frozen=True)
class Task:
    """What is trained."""

    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    optimizer: Callable[..., torch.optim.Optimizer]
    class_dim: int | None = None


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(128, 3, 32, 32), torch.randint(10, (128,))


def texts() -> tuple[Tensor, Tensor]:
    tokens = torch.randint(1000, (16, 65))
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


TASKS = {
    "alexnet": Task(StridedAlexNet, images, lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9)),
    "gpt": Task(SmallGpt, texts, lambda p: torch.optim.AdamW(p, lr=3e-4), class_dim=-1),
}


class Training:
    """One network in training, with or without a monitor."""

    def __init__(self, task: Task, device: torch.device, **options: object) -> None:
        torch.manual_seed(0)
        self.model = task.model().to(device)
        self.batch = tuple(each.to(device) for each in task.batch())
        self.optimizer = task.optimizer(self.model.parameters())
        self.monitor = None
        if options:
            self.monitor = Monitor(self.model, "cross-entropy", class_dim=task.class_dim, **options)

    def run(self, steps: int) -> float:
        """Train for some steps; the seconds that this took."""
        start = now(self.batch[0].device)
        x, t = self.batch
        for _ in range(steps):
            if self.monitor:
                self.monitor.step(x, t)
            self.optimizer.zero_grad()
            y = self.model(x)
            F.cross_entropy(y.flatten(0, -2), t.flatten()).backward()
            self.optimizer.step()
        return now(self.batch[0].device) - start


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def multiples(task: Task, device: torch.device, examples: int, pairs: int) -> dict[str, float]:
    """How many plain steps a step with a measurement on so many examples takes."""
    measured = Training(task, device, every=1, overhead=1e9, examples=examples)
    plain = Training(task, device)
    measured.run(1), plain.run(1)
    ratios = [measured.run(1) / plain.run(1) for _ in range(pairs)]
    m = statistics.median(ratios)
    return {"examples": examples, "multiple": m, **{f"every {k}": (m - 1) / k for k in INTERVALS}}


def share(task: Task, device: torch.device, seconds: float, window: int) -> dict[str, Any]:
    """Times with and without a monitor at its defaults, in windows that alternate."""
    watched, plain = Training(task, device, every=100), Training(task, device)
    plain.run(2)
    with_, without, start = 0.0, 0.0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        without += plain.run(window)
        watched.monitor.pause()  # the other's steps earn it nothing
        with_ += watched.run(window)
    steps = [record["step"] for record in watched.monitor.history]
    examples = [record["monitor/examples"] for record in watched.monitor.history]
    shares = {"ratio": with_ / without - 1, "by its own account": watched.monitor.share}
    return {"seconds": with_, "plain seconds": without, **shares, "measured at steps": steps, "examples": examples}


@dataclass(frozen=True)
class Cost:
    """What one task gave."""

    task: str
    device: str
    threads: int
    multiples: list[dict[str, float]]
    share: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), choices=list(TASKS))
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--examples", type=int, nargs="+", default=[2, 8])
    parser.add_argument("--seconds", type=float, default=300, help="of training with and without, each task")
    parser.add_argument("--window", type=int, default=10, help="steps before the other takes its turn")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    device, found = torch.device(options.device), []
    for name in options.tasks:
        task = TASKS[name]
        table = [multiples(task, device, examples, options.pairs) for examples in options.examples]
        for row in table:
            print(name, " ".join(f"{key} {value:.3g}" for key, value in row.items()), flush=True)
        whole = share(task, device, options.seconds, options.window)
        print(name, whole, flush=True)
        found.append(asdict(Cost(name, device.type, torch.get_num_threads(), table, whole)))
        if options.json:
            options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
