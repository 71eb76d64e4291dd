"""All that a measurement could leave changed, before and after."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

HOOKS = [name for name in nn.Module().__dict__ if "hook" in name]


def bits(t: Tensor) -> bytes:
    return t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes() if t.dim() else bits(t.view(1))


def state_of(model: nn.Module, *tensors: Tensor) -> dict[str, Any]:
    """All that a measurement could leave changed, bit for bit and object by object."""
    parameters, buffers = dict(model.named_parameters()), dict(model.named_buffers())
    modules = dict(model.named_modules(remove_duplicate=False))
    return {
        "weights": {name: (id(p), bits(p)) for name, p in parameters.items()},
        "versions": {name: p._version for name, p in parameters.items()},
        "buffers": {name: (id(b), bits(b)) for name, b in buffers.items()},
        "state": {name: bits(t) for name, t in model.state_dict().items()},
        "grads": {n: None if p.grad is None else (id(p.grad), bits(p.grad)) for n, p in parameters.items()},
        "requires_grad": {name: p.requires_grad for name, p in parameters.items()},
        "modes": {name: module.training for name, module in modules.items()},
        "modules": [(name, id(module)) for name, module in modules.items()],
        "hooks": {name: {h: copy(getattr(m, h)) for h in HOOKS} for name, m in modules.items()},
        "tensor hooks": {name: p._backward_hooks for name, p in parameters.items()},
        "attributes": {name: {key: id(value) for key, value in vars(m).items()} for name, m in modules.items()},
        "random": bits(torch.get_rng_state()),
        "cuda random": [bits(s) for s in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else [],
        "tf32": (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32),
        "grad mode": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "default dtype": torch.get_default_dtype(),
        "tensors": [(bits(t), t._version, t.requires_grad, t.grad) for t in tensors],
    }


@contextmanager
def unchanged(model: nn.Module, *tensors: Tensor) -> Iterator[None]:
    before = state_of(model, *tensors)
    yield
    after = state_of(model, *tensors)
    for key, value in before.items():
        assert after[key] == value, key
