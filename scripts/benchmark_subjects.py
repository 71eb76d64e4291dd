"""What is measured side by side: a network on a batch, as other libraries take it and as hessdiag does."""

from __future__ import annotations

from dataclasses import dataclass
from inspect import signature

import torch
from floors import Layer, layers_of
from peers import Task
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

from hessdiag import init
from hessdiag.curvature.exact import exact_per_example
from hessdiag.curvature.measurement import measure_curvature
from hessdiag.curvature.plan import Plan
from hessdiag.curvature.result import Curvature
from hessdiag.curvature.settings import Settings
from hessdiag.data.batch import Batch
from hessdiag.derivatives.losses import CrossEntropy
from hessdiag.derivatives.problem import Problem
from hessdiag.execution.memory import Memory
from hessdiag.execution.work import ALL_HERE
from hessdiag.models import StridedLeNet
from hessdiag.models.feedforward import mlp
from hessdiag.network.blocks import find_blocks
from hessdiag.network.shapes import NetworkShape, measure_shapes

AT_ONCE = 16  # examples of the reference


@dataclass(frozen=True)
class Subject:
    """A network on a batch, with random targets, under cross-entropy."""

    name: str
    task: Task
    problem: Problem

    @classmethod
    def of(cls, name: str, model: nn.Module, x: Tensor, targets: Tensor) -> Subject:
        """From a model whose weights are all blocks."""
        problem = Problem(model, Batch.of(x, targets), CrossEntropy(), find_blocks(model)[0])
        return cls(name, Task(model, x, targets), problem)

    @property
    def layers(self) -> list[Layer]:
        """As multiplications."""
        return layers_of(self.problem)

    def exact_map(self) -> Tensor:
        """hessdiag's exact map of each example, averaged."""
        shape = measure_shapes(self.problem.model, self.problem.batch, self.problem.blocks)
        chunk = shape.chunk(shape.outputs, memory=Memory.of(None, self.task.x.device).chunk)
        return torch.from_numpy(exact_per_example(self.problem, chunk=chunk).frobenius_sq)

    def map(self, *, per: str, rtol: float = 0.05, seed: int = 0, method: str = "auto") -> Curvature:
        """hessdiag's map of all blocks, without what a whole diagnosis measures beside it."""
        settings = Settings(per=per, method=method, rtol=rtol, seed=seed)
        shape = measure_shapes(self.problem.model, self.problem.batch, self.problem.blocks)
        memory = Memory.of(None, self.task.x.device)
        how = _planned(settings, self.problem, shape, memory)
        return measure_curvature(self.problem, how, shape, settings, memory=memory, work=ALL_HERE)

    def reference(self) -> Tensor:
        """The map of each example, averaged, in float64 from dense Jacobians by torch.func; nothing of hessdiag's."""
        names = [name for name, _ in self.task.model.named_parameters()]
        weights = [weight.detach().double() for weight in self.task.weights]

        def outputs(weights: list[Tensor], x: Tensor) -> Tensor:
            now = dict(zip(names, weights, strict=True))
            return functional_call(self.task.model, now, (x.unsqueeze(0),)).squeeze(0)  # type: ignore[no-any-return]

        total = torch.zeros(len(weights), len(weights), dtype=torch.float64, device=self.task.x.device)
        for x in self.task.x.double().split(AT_ONCE):
            p = torch.softmax(vmap(outputs, (None, 0))(weights, x), dim=1)
            S = torch.diag_embed(p) - p.unsqueeze(2) * p.unsqueeze(1)
            jacobians = vmap(jacrev(outputs), (None, 0))(weights, x)
            SK = [S @ J.flatten(2) @ J.flatten(2).transpose(1, 2) for J in jacobians]
            for i, left in enumerate(SK):
                total[i] += torch.stack([(left * right.transpose(1, 2)).sum() for right in SK])
        return (total / len(self.task.x)).cpu()


def _planned(settings: Settings, problem: Problem, shape: NetworkShape, memory: Memory) -> Plan:
    """By the sizes alone, or by estimated costs: versions that are compared know one or the other."""
    if "problem" in signature(settings.plan).parameters:
        return settings.plan(problem, shape, memory=memory.total)
    return settings.plan(outputs=shape.outputs, batch_size=problem.batch.size)


def lenet(size: int, device: torch.device) -> Subject:
    """As a chain of modules, which BackPACK asks for."""
    torch.manual_seed(0)
    source = init.apply(StridedLeNet(), "geometric")
    layers = (source.conv1, nn.ReLU(), source.conv2, nn.ReLU(), nn.Flatten())
    model = nn.Sequential(*layers, source.fc1, nn.ReLU(), source.fc2, nn.ReLU(), source.fc3)
    x, targets = torch.randn(size, 3, 32, 32), torch.randint(10, (size,))
    return Subject.of(f"LeNet, batch {size}", model.to(device), x.to(device), targets.to(device))


def perceptron(size: int, device: torch.device) -> Subject:
    """Three layers; BackPACK's square roots of 1024 examples would take 8 GB."""
    torch.manual_seed(0)
    widths = [784, 256, 128, 10]
    model = init.apply(mlp(widths, bias=False), "geometric")
    x, targets = torch.randn(size, widths[0]), torch.randint(10, (size,))
    name = f"MLP {'-'.join(map(str, widths))}, batch {size}"
    return Subject.of(name, model.to(device), x.to(device), targets.to(device))
