"""One whole diagnosis of a network built from its configuration: time and memory in a fresh process.

    python scripts/benchmarks/whole_diagnosis.py resnet18 diagnose [--turns 1] [--quick] [--device cpu]

Prints a line of JSON. `gradient` in place of `diagnose` takes gradients only: what the other's memory is compared with.
Each turn also times gradients before and after. Weights are random: cost does not depend on them, save the effective
rank, which decides how many directions are drawn. `scripts/benchmarks/benchmark_peers.py` runs both.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from alternating import GRADIENT, alternate, clock_of
from torch import Tensor, nn

import hessdiag
from hessdiag.data.batch import Batch


@dataclass(frozen=True)
class Case:
    """A network with a batch, under cross-entropy.

    Attributes:
        model: in evaluation mode.
        inputs, targets: of the batch.
        options: of `hessdiag.diagnose`, beside the loss.
    """

    model: nn.Module
    inputs: Any
    targets: Tensor
    options: dict[str, Any] = field(default_factory=dict)

    def gradient(self) -> object:
        """The unit of time: of the mean loss in all weights."""
        y = self.batch.call(self.model)
        weights = [p for p in self.model.parameters() if p.requires_grad]
        return torch.autograd.grad(F.cross_entropy(y.flatten(0, -2), self.targets.flatten()), weights)

    @property
    def batch(self) -> Batch:
        """As hessdiag reads it."""
        return Batch.of(self.inputs, self.targets)

    def to(self, device: torch.device) -> Case:
        """On a device."""
        moved = {k: v.to(device) for k, v in self.inputs.items()} if isinstance(self.inputs, dict) else None
        inputs = self.inputs.to(device) if moved is None else moved
        return Case(self.model.to(device), inputs, self.targets.to(device), self.options)


def resnet(layers: tuple[int, ...], kind: str, hidden: tuple[int, ...], batch: int, size: int) -> Case:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(depths=list(layers), layer_type=kind, hidden_sizes=list(hidden), num_labels=1000)
    model = ResNetForImageClassification(config)
    return Case(model.eval(), torch.randn(batch, 3, size, size), torch.randint(1000, (batch,)))


def vit(batch: int, layers: int) -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_labels=1000, num_hidden_layers=layers))
    return Case(model.eval(), torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,)))


def bert(batch: int, tokens: int, layers: int) -> Case:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(num_labels=2, num_hidden_layers=layers)
    words = torch.randint(config.vocab_size, (batch, tokens))
    inputs = {"input_ids": words, "attention_mask": torch.ones_like(words)}
    return Case(BertForSequenceClassification(config).eval(), inputs, torch.randint(2, (batch,)))


def gpt2(batch: int, tokens: int, layers: int) -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=layers, use_cache=False)
    words = torch.randint(config.vocab_size, (batch, tokens + 1))
    inputs = {"input_ids": words[:, :-1].contiguous()}
    return Case(GPT2LMHeadModel(config).eval(), inputs, words[:, 1:].contiguous(), {"class_dim": -1})


NARROW, WIDE = (64, 128, 256, 512), (256, 512, 1024, 2048)
CASES: dict[str, tuple[str, Callable[[], Case], Callable[[], Case]]] = {
    "resnet18": (
        "ResNet-18, 8 x 224²",
        lambda: resnet((2, 2, 2, 2), "basic", NARROW, 8, 224),
        lambda: resnet((1, 1, 1, 1), "basic", NARROW, 2, 32),
    ),
    "resnet50": (
        "ResNet-50, 8 x 224²",
        lambda: resnet((3, 4, 6, 3), "bottleneck", WIDE, 8, 224),
        lambda: resnet((1, 1, 1, 1), "bottleneck", WIDE, 2, 32),
    ),
    "vit": ("ViT-B/16, 4 x 224²", lambda: vit(4, 12), lambda: vit(2, 1)),
    "bert": ("BERT-base, 8 x 128 tokens", lambda: bert(8, 128, 12), lambda: bert(2, 16, 1)),
    "gpt2": ("GPT-2 124M, 2 x 256 tokens", lambda: gpt2(2, 256, 12), lambda: gpt2(1, 8, 1)),
}


def peak_memory(device: torch.device) -> int:
    """Most bytes that this process has held so far, of a GPU where it runs on one.

    Linux counts the parent's in `ru_maxrss` of a process that it has just started; its status file does not.
    """
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return 1024 * int(status.split("VmHWM:")[1].split()[0])
    except (OSError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure(name: str, *, turns: int, quick: bool, device: torch.device) -> dict[str, Any]:
    """Time and memory of a whole diagnosis; of gradients alone where there are no turns."""
    torch.manual_seed(0)
    title, full, small = CASES[name]
    case = (small if quick else full)().to(device)
    record: dict[str, Any] = {"title": title, "batch": case.batch.size, "memory at rest": peak_memory(device)}
    if not turns:
        record["times"] = alternate({GRADIENT: case.gradient}, turns=3, device=device).record()
    else:
        reports = []

        def diagnose() -> None:
            how = {"loss": "cross-entropy", "mode": "eval", **case.options}
            reports.append(hessdiag.diagnose(case.model, case.inputs, case.targets, **how))

        case.gradient()
        functions = {GRADIENT: case.gradient, "hessdiag": diagnose}
        record["times"] = alternate(functions, turns=turns, device=device, warm_up=False).record()
        report = reports[-1]
        errors = [b.stderr / b.avg_sq_singular_value for b in report.blocks if b.kind == "weight" and b.stderr]
        record |= {
            "blocks": len(report.blocks),
            "skipped": len(report.skipped),
            "method": f"{report.method}: {report.method_reason}",
            "products": max(block.products for block in report.blocks),
            "outputs": report.outputs,
            "largest relative stderr": max(errors, default=0.0),
        }
    return record | {"memory": peak_memory(device), "clock": clock_of(device)[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=list(CASES))
    parser.add_argument("what", choices=["gradient", "diagnose"])
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="a small network of the kind")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of the libraries
    turns = options.turns if options.what == "diagnose" else 0
    print(json.dumps(measure(options.name, turns=turns, quick=options.quick, device=torch.device(options.device))))


if __name__ == "__main__":
    main()
