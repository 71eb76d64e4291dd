"""Cost of λ_max and trace of every weight's Gauss-Newton block, by hessdiag and by its peers, at equal error.

    pip install --no-deps curvlinops-for-pytorch pyhessian hessian-eigenthings einops einconv unfoldNd ...
    OMP_NUM_THREADS=1 python scripts/benchmarks/sharpness_peers.py

A ResNet-18 of 8 channels (batch statistics fixed, which peers need), 32 images of 16 × 16, and a GPT of 4 layers.
hessdiag is timed as a whole, with its checks and the whole network's numbers, of the same weights and of all
parameters. Of peers, single products with every fourth weight's block are timed, and counted four times; there are as
many as SciPy's `eigsh` takes to the same tolerance, and as Hutchinson's estimator takes to the same standard error of
the trace, or to 2 % where hessdiag is exact. A peer whose matrix is the Hessian alone is given the Hessian. Compiled:
curvlinops' product with one weight inside `torch.compile`, without the minutes that this takes. Each cost is in
gradients that were timed just before and after it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from scipy.sparse.linalg import eigsh
from torch import Tensor, nn

import hessdiag

EXACT_ERROR, PILOT, TOLERANCE, MOST = 0.02, 24, 1e-3, 10_000
Product = Callable[[Tensor], object]


class Residual(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, width: int, out: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *(nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out), nn.ReLU()),
            *(nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)),
        )
        same = stride == 1 and width == out
        self.skip = nn.Identity() if same else nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.main(x) + self.skip(x))


def resnet18(width: int = 8) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    before = width
    for stage in range(4):
        for number in range(2):
            layers.append(Residual(before, width * 2**stage, 1 + (stage > 0 and number == 0)))
            before = width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10)).eval()


class Gpt(nn.Module):
    """A language model with its head apart."""

    def __init__(self, width: int = 32, tokens: int = 50, layers: int = 4) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(32, width)
        self.blocks = nn.ModuleList(GptBlock(width) for _ in range(layers))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        h = self.tokens(x) + self.places.weight[: x.shape[1]]
        for block in self.blocks:
            h = block(h)
        return self.head(self.last(h)).transpose(1, 2)  # (B, V, T)


class GptBlock(nn.Module):
    """One head of causal attention, and a perceptron."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, -1)).unbind(-2)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
        x = x + self.out(scores.masked_fill(~mask, -1e9).softmax(-1) @ v)
        return x + self.down(F.gelu(self.up(self.second(x))))


def curvlinops(name: str) -> Callable[..., Product]:
    def make(model: nn.Module, x: Tensor, t: Tensor, weight: str) -> Product:
        import curvlinops as library

        parameter = dict(model.named_parameters())[weight]
        operator = getattr(library, name)(
            model, nn.CrossEntropyLoss(), [parameter], [(x, t)], check_deterministic=False
        )
        return lambda v: operator @ v

    return make


def eigenthings(model: nn.Module, x: Tensor, t: Tensor, weight: str) -> Product:
    from hessian_eigenthings.loss_fns.standard import supervised_forward, supervised_loss_of_output
    from hessian_eigenthings.operators.ggn import GGNOperator

    criterion = supervised_loss_of_output(F.cross_entropy)
    chosen = GGNOperator(model, [(x, t)], supervised_forward, criterion, param_filter=lambda name, _: name == weight)
    return chosen.matvec


def pyhessian(model: nn.Module, x: Tensor, t: Tensor, weight: str) -> Product:
    from pyhessian.utils import hessian_vector_product

    parameter = dict(model.named_parameters())[weight]
    gradient = torch.autograd.grad(F.cross_entropy(model(x), t), [parameter], create_graph=True)
    return lambda v: hessian_vector_product(gradient, [parameter], [v.view_as(parameter)])


def compiled(model: nn.Module, x: Tensor, t: Tensor, weight: str) -> Product:
    return torch.compile(curvlinops("GGNLinearOperator")(model, x, t, weight))


PEERS = {
    "curvlinops GGN": curvlinops("GGNLinearOperator"),
    "curvlinops GGN, compiled": compiled,
    "curvlinops Hessian": curvlinops("HessianLinearOperator"),
    "hessian-eigenthings GGN": eigenthings,
    "PyHessian": pyhessian,
}


def products_needed(model: nn.Module, x: Tensor, t: Tensor, weight: str, error: float) -> int:
    """Of `eigsh`, and of Hutchinson's estimator to a standard error."""
    H = hessdiag.operator(model, x, t, blocks=weight, mode="eval")
    counted = 0

    def count(v: object) -> object:
        nonlocal counted
        counted += 1
        return H @ v

    from scipy.sparse.linalg import LinearOperator

    eigsh(LinearOperator(H.shape, count, dtype=H.dtype), k=1, which="LA", tol=TOLERANCE, return_eigenvectors=False)
    signs = torch.randint(0, 2, (H.shape[0], PILOT), generator=torch.Generator().manual_seed(0)).mul(2).sub(1).float()
    samples = (signs * H.torch_matmat(signs)).sum(dim=0)
    return counted + min(MOST, max(1, round(float((samples.std() / max(error, 1e-30)) ** 2))))


def seconds(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.process_time()
        run()
        times.append(time.process_time() - start)
    return sorted(times)[len(times) // 2]


def measure(model: nn.Module, x: Tensor, t: Tensor) -> dict[str, object]:
    every = [name for name, parameter in model.named_parameters() if parameter.dim() > 1]
    weights, share = every[::4], len(every) / len(every[::4])

    def gradient() -> float:
        return seconds(lambda: torch.autograd.grad(F.cross_entropy(model(x), t), list(model.parameters())), 15)

    def gradients(run: Callable[[], object], repeats: int) -> float:
        before, found = gradient(), seconds(run, repeats)
        return 2 * found / (before + gradient())

    def ours(blocks: list[str] | None) -> hessdiag.Sharpness:
        return hessdiag.sharpness(model, x, t, mode="eval", blocks=blocks, progress=False)

    sharp = ours(every)
    errors = {name: sharp[name].trace_stderr or EXACT_ERROR * sharp[name].trace for name in weights}
    counts = {name: products_needed(model, x, t, name, errors[name]) for name in weights}
    found: dict[str, object] = {
        "how": sharp.how,
        "products": sum(counts.values()) * share,
        "hessdiag": gradients(lambda: ours(every), 3),
        "hessdiag, all parameters": gradients(lambda: ours(None), 3),
    }
    for label, make in PEERS.items():
        timed = weights[1:2] if make is compiled else weights
        try:
            total = 0.0
            for name in timed:
                product, v = make(model, x, t, name), torch.randn(sharp[name].numel)
                product(v)
                total += counts[name] * gradients(lambda product=product, v=v: product(v), 5)
            found[label] = total * sum(counts.values()) / sum(counts[name] for name in timed) * share
        except Exception as error:  # of a library
            found[label] = f"failed: {' '.join(str(error).split())[:90]}"
        print(label, found[label], flush=True)
    return found


if __name__ == "__main__":
    torch.manual_seed(0)
    image, text = torch.randn(32, 3, 16, 16), torch.randint(50, (8, 17))
    tasks = {"resnet18": (resnet18(), image, torch.randint(10, (32,))), "gpt": (Gpt(), text[:, :-1], text[:, 1:])}
    found = {}
    for name, task in tasks.items():
        found[name] = measure(*task)
        print(name, json.dumps(found[name], indent=1), flush=True)
    Path("figures/sharpness_peers.json").write_text(json.dumps(found, indent=1) + "\n")
