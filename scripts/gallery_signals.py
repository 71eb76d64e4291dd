"""Measure cheap signals of a network: one forward pass, one backward pass, and statistics of its weights."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import get_gradient_edge

TINY = torch.finfo(torch.float32).tiny
TRANSPARENT = re.compile(
    r"(View|UnsafeView|Reshape\w*|Transpose|T|Permute|Expand|Slice|Squeeze|Unsqueeze|Clone|Alias|Split|SplitWithSizes"
    r"|Select|ToCopy|Copy|CopySlices|NativeDropout|Unbind|Chunk|Index|Mean|MaxPool2DWithIndices|AvgPool2D|Stack"
    r"|AdaptiveAvgPool2D|Neg|Cat|Roll)Backward\d*"
)
ACTIVATIONS = {
    "Relu": "relu", "Gelu": "gelu", "Silu": "silu", "Tanh": "tanh", "Sigmoid": "sigmoid", "Sin": "sin", "Elu": "elu",
    "LeakyRelu": "leaky_relu", "Hardtanh": "relu6", "Softplus": "softplus", "Softmax": "softmax",
}  # fmt: skip


def signals(model: nn.Module, inputs: Any, targets: Tensor, *, loss: str) -> dict[str, Any]:
    """Signals of a network on a batch, as plain numbers."""
    owners = {path: m for path, m in model.named_modules() if any(p is not None for p in m._parameters.values())}
    calls: dict[str, dict[str, Any]] = {}
    norm_nodes: dict[Any, str] = {}
    readers: list[Tensor] = []
    handles = [m.register_forward_hook(_watch(path, calls, norm_nodes, readers)) for path, m in owners.items()]
    frozen = [p for p in model.parameters() if not p.requires_grad]
    for p in frozen:  # so that the graph is whole: a skip connection without gradients is no less a skip connection
        p.requires_grad_(True)
    y = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
    for handle in handles:
        handle.remove()
    values = _values(y, targets, loss)
    order = list(calls)
    held = {id(p) for p in frozen}
    trainable = {name: p for name, p in model.named_parameters() if id(p) not in held}
    edges = [calls[path]["edge"] for path in order]
    wanted = [*(e for e in edges if e is not None), *trainable.values()]
    found = iter(torch.autograd.grad(values.sum(), wanted, allow_unused=True, retain_graph=True))
    for path, edge in zip(order, edges, strict=True):
        gradient = next(found) if edge is not None else None
        calls[path] |= _gradient_statistics(gradient, calls[path]["channel"])
    gradients = dict(zip(trainable, found, strict=True))
    _label(y, calls, norm_nodes)
    for p in frozen:
        p.requires_grad_(False)
    for call in calls.values():
        for key in ("edge", "node", "channel"):
            call.pop(key)
    return {
        "loss": _loss_signals(y, targets, loss, values),
        "output": _moments(y.detach()),
        "inputs": _input_signals(inputs),
        "fresh_norm": _fresh(model),
        "norms": sum("Norm" in type(m).__name__ for m in model.modules()),
        "active_norms": sum(call["active_norm"] for call in calls.values()),
        "frozen": len(frozen),
        "layers": [{"path": path, **calls[path]} for path in order],
        "parameters": _parameters(model, gradients, len(values), order),
    }


def _evaluating(module: nn.Module) -> bool:
    """Whether a batch normalisation uses its running statistics, and so normalises nothing."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and not module.training


def _number(x: Tensor | None, readers: list[Tensor]) -> int:
    """The same number for every layer that reads the same tensor."""
    if x is None:
        return -1
    for index, other in enumerate(readers):
        if other.data_ptr() == x.data_ptr() and other.numel() == x.numel():
            return index
    readers.append(x)
    return len(readers) - 1


def _watch(path: str, calls: dict[str, dict[str, Any]], norm_nodes: dict[Any, str], readers: list[Tensor]) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        x = args[0] if args and isinstance(args[0], Tensor) else None
        out = output if isinstance(output, Tensor) else output[0] if isinstance(output, tuple) else None
        if "Norm" in type(module).__name__ and x is not None and x.grad_fn is not None:
            norm_nodes[x.grad_fn] = path
        if not isinstance(out, Tensor) or path in calls:
            return
        convolution = hasattr(module, "kernel_size") or "BatchNorm" in type(module).__name__
        channel = 1 if (convolution or "GroupNorm" in type(module).__name__) and out.dim() > 2 else out.dim() - 1
        seen = {f"out_{key}": value for key, value in _moments(out.detach()).items()}
        if x is not None and x.is_floating_point():
            seen |= {f"x_{key}": value for key, value in _moments(x.detach()).items()}
        units = out.detach().transpose(0, channel).flatten(1) if out.dim() > 1 else out.detach()[None]
        seen["samples"] = units.shape[1]
        seen["off_share"] = float((units.amax(1) <= 0).float().mean())
        seen |= {"type": type(module).__name__, "channel": channel, "reads": _number(x, readers)}
        seen["active_norm"] = "Norm" in type(module).__name__ and not _evaluating(module)
        differentiable = out.requires_grad and out.grad_fn is not None
        calls[path] = seen | {
            "edge": get_gradient_edge(out) if differentiable else None,
            "node": out.grad_fn if differentiable else None,
        }

    return hook


def _moments(values: Tensor) -> dict[str, float]:
    """E[v²], the share of it that varies between examples, and the largest entry over the rms."""
    values = values.double()
    sq = float(values.square().mean())
    varies = float(values.var(0).mean()) if len(values) > 1 else math.nan
    return {"sq": sq, "varies": varies / sq if sq > 0 else 0.0, "mean": float(values.mean())}


def _gradient_statistics(gradient: Tensor | None, channel: int) -> dict[str, float]:
    if gradient is None:
        return {"gradient_sq": 0.0, "gradient_total": 0.0, "dead_share": 1.0}
    units = gradient.transpose(0, channel).flatten(1) if gradient.dim() > 1 else gradient[None]
    dead = float((units.abs().amax(1) < TINY).float().mean())
    total = float(gradient.double().square().sum()) / len(gradient)
    return {"gradient_sq": float(gradient.double().square().mean()), "gradient_total": total, "dead_share": dead}


def _values(y: Tensor, targets: Tensor, loss: str) -> Tensor:
    """Each example's own loss, averaged over its positions."""
    if loss == "mse":
        return (y - targets).square().flatten(1).mean(1)
    y = y.movedim(1, -1) if y.dim() == 4 else y
    each = F.cross_entropy(y.flatten(0, -2), targets.flatten(), reduction="none", ignore_index=-100)
    each = each.view(len(targets), -1)
    kept = (targets != -100).view(len(targets), -1)
    return (each * kept).sum(1) / kept.sum(1).clamp(min=1)


def _loss_signals(y: Tensor, targets: Tensor, loss: str, values: Tensor) -> dict[str, Any]:
    initial = float(values.detach().mean())
    stderr = float(values.detach().std()) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    if loss == "mse":
        t = targets.double()
        n = len(t)
        own = float(t.var(0).mean()) * n / (n - 1) if n > 1 else math.inf  # of the mean of the others
        chance = min(float(t.square().mean()), float(t.var()), own)
        return {"kind": loss, "initial": initial, "chance": chance, "ratio": initial / chance, "stderr": stderr}
    classes = y.shape[1] if y.dim() == 4 else y.shape[-1]
    labels = targets.flatten()
    labels = labels[labels != -100]
    counts = torch.bincount(labels, minlength=classes).double()
    n = len(labels)
    held_out = -((counts[labels] - 1 + 1) / (n - 1 + classes)).log().mean()  # each label guessed from the others, +1
    chance = min(math.log(classes), float(held_out))
    return {
        "kind": loss,
        "initial": initial,
        "chance": chance,
        "ratio": initial / chance,
        "stderr": stderr,
        "classes": classes,
    }


def _input_signals(inputs: Any) -> dict[str, float]:
    tensors = list(inputs.values()) if isinstance(inputs, Mapping) else [inputs]
    real = [t for t in tensors if t.is_floating_point()]
    if not real:
        return {}
    flat = torch.cat([t.double().flatten() for t in real])
    return {"sq": float(flat.square().mean()), "mean": float(flat.mean()), "max": float(flat.abs().max())}


def _fresh(model: nn.Module) -> int:
    """Batch normalisations in evaluation mode that have not seen a batch."""
    return sum(
        not m.training and m.running_mean is not None and bool((m.running_mean == 0).all() & (m.running_var == 1).all())
        for m in model.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm)
    )


# -- where a layer's output goes: labels from the autograd graph ------------------------------------------------------


def _label(y: Tensor, calls: dict[str, dict[str, Any]], norm_nodes: dict[Any, str]) -> None:
    consumers: dict[Any, list[tuple[Any, int]]] = defaultdict(list)
    seen, stack = set(), [y.grad_fn]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for position, (parent, _) in enumerate(node.next_functions):
            if parent is not None:
                consumers[parent].append((node, position))
                stack.append(parent)
    for call in calls.values():
        activations: dict[str, float] = {}
        found = _next(call["node"], y.grad_fn, consumers, norm_nodes, activations) if call["node"] else set()
        call["labels"], call["activation"] = sorted(found), activations
        call["used"] = call["node"] in seen


def _next(start: Any, root: Any, consumers: Any, norm_nodes: Any, activations: dict[str, float]) -> set[str]:
    labels: set[str] = set()
    visited, stack = {start}, [start]

    def go(node: Any) -> None:
        if node not in visited:
            visited.add(node)
            stack.append(node)

    while stack:
        node = stack.pop()
        if node is root:
            labels.add("output")
        if node in norm_nodes:
            labels.add("norm")
        for after, position in consumers[node]:
            name = after.name().removeprefix("torch::autograd::")
            kind = ACTIVATIONS.get(re.sub(r"Backward\d*$", "", name))
            if name.startswith("NativeBatchNorm"):
                labels.add("norm")
                go(after)
            elif kind:
                labels.add(kind)
                activations |= _activation(after, kind)
            elif "ScaledDotProduct" in name:
                labels.add("attention:" + "qkv"[min(position, 2)])
            elif TRANSPARENT.fullmatch(name):
                go(after)
            elif re.fullmatch(r"(Add|Sub|Mul|Div)Backward\d", name):
                others = [p for i, (p, _) in enumerate(after.next_functions) if p is not None and i != position]
                if not others or _only_parameters(others[0]):
                    go(after)
                elif name.startswith(("Add", "Sub")):
                    if _descends(others[0], start):
                        go(after)  # the layer's output on both sides: part of a nonlinearity, or a skip starts here
                        labels.add("self-add")
                    else:
                        labels.add("add")
                else:
                    labels.add("gate")
    return labels


def _activation(node: Any, kind: str) -> dict[str, float]:
    """What a nonlinearity did, from the tensors that it saved for its backward pass."""
    if kind == "sin":
        return {"phase_rms": float(node._saved_self.double().square().mean().sqrt())}
    if kind in ("tanh", "sigmoid"):
        result = node._saved_result.detach()
        result = result if kind == "tanh" else 2 * result - 1
        return {"saturated": float((result.abs() > 0.99).float().mean())}
    if kind == "relu":
        result = node._saved_result.detach()
        return {"on": float((result > 0).float().mean())}
    return {}


def _only_parameters(node: Any, depth: int = 4) -> bool:
    if node.name().endswith("AccumulateGrad"):
        return True
    parents = [p for p, _ in node.next_functions if p is not None]
    return (
        depth > 0
        and TRANSPARENT.fullmatch(node.name()) is not None
        and all(_only_parameters(p, depth - 1) for p in parents)
    )


def _descends(node: Any, ancestor: Any) -> bool:
    seen, stack = set(), [node]
    while stack:
        node = stack.pop()
        if node is ancestor:
            return True
        if node is None or node in seen:
            continue
        seen.add(node)
        stack.extend(p for p, _ in node.next_functions)
    return False


# -- weights -----------------------------------------------------------------------------------------------------------


def _parameters(
    model: nn.Module, gradients: dict[str, Tensor | None], batch: int, order: list[str]
) -> list[dict[str, Any]]:
    slots: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for path, module in model.named_modules():
        for attribute, parameter in module._parameters.items():
            if parameter is not None:
                slots[id(parameter)].append((path, attribute))
    rows = []
    for name, parameter in model.named_parameters():
        places = slots[id(parameter)]
        module = model.get_submodule(places[0][0])
        w = parameter.detach().double()
        row: dict[str, Any] = {
            "name": name,
            "owners": [path for path, _ in places],
            "attribute": places[0][1],
            "type": type(module).__name__,
            "shape": list(w.shape),
            "trainable": parameter.requires_grad,
            "called": any(path in order for path, _ in places),
            "sibling": re.sub(r"\d+", "#", name) + str(tuple(w.shape)),
        }
        row |= _weight_statistics(w) | _fans(module, places[0][1], w)
        gradient = gradients.get(name)
        row["gradient"] = "none" if gradient is None else "zero" if float(gradient.abs().max()) < TINY else "some"
        if gradient is not None:
            g = gradient.double() / batch
            row["gradient_sq"] = float(g.square().mean())
            row["gradient_zeros"] = float((g.abs() < TINY).double().mean())
            norm = float(w.square().sum() * g.square().sum())
            row["radial"] = float((w * g).sum() ** 2) / norm if norm > 0 else math.nan
        rows.append(row)
    return rows


def _weight_statistics(w: Tensor) -> dict[str, Any]:
    sq = float(w.square().mean())
    centred = w - w.mean()
    variance = float(centred.square().mean())
    fourth = float(centred.square().square().mean())
    return {
        "sq": sq,
        "mean": float(w.mean()),
        "numel": w.numel(),
        "unlike": float(w.var(0, correction=0).mean()) / sq if sq > 0 and len(w) > 1 else 1.0,
        "kurtosis": fourth / variance**2 if variance > 1e-30 else math.nan,
        "max_rms": float(w.abs().max()) / math.sqrt(sq) if sq > 1e-60 else 0.0,
        "zeros": float((w == 0).double().mean()),
        "subnormal": float(((w != 0) & (w.abs() < TINY)).double().mean()),
    }


def _fans(module: nn.Module, attribute: str, w: Tensor) -> dict[str, Any]:
    if w.dim() < 2:
        return {"n": 0, "m": 0, "k": 1, "groups": 1, "parts": []}
    shape, groups = list(w.shape), int(getattr(module, "groups", 1))
    k = math.prod(shape[2:])
    n, m = shape[1], shape[0] // groups
    if type(module).__name__ == "Conv1D":
        n, m = shape[0], shape[1]
    if "ConvTranspose" in type(module).__name__:
        n, m = shape[0] // groups, shape[1]
    parts = 4 if isinstance(module, nn.LSTM) else 3 if isinstance(module, nn.GRU) else 1
    dim = 1 if type(module).__name__ == "Conv1D" else 0
    if w.dim() == 2 and parts == 1 and shape[dim] == 3 * shape[1 - dim]:
        parts = 3
    pieces = w.chunk(parts, dim) if parts > 1 else ()
    return {"n": n, "m": m, "k": k, "groups": groups, "parts": [float(p.square().mean()) for p in pieces]}
