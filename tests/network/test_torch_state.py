"""What a measurement changes in the process: little, in one place, and nothing afterwards, also in several threads."""

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

import hessdiag
from hessdiag.data.seeds import user_code
from hessdiag.network.preserve import preserve_state
from hessdiag.network.torch_state import SLOW_VMAP, draws_random_numbers, measuring, seed_torch, seeded_rng
from tests.network.test_preserve import MKLDNN
from tests.networks import Net, build
from tests.unchanged import state_of

KERNELS = ("mm", "addmm", "bmm", "convolution", "linear", "native_batch_norm", "_weight_norm_interface", "gelu")
FLAGS = {"precision", "mkldnn", "stance", "cudnn"}  # that a measurement sets for the whole process


def process_state() -> dict[str, Any]:
    """Everything outside the model that a measurement could change, as any thread sees it."""
    functions = {
        f"{module.__name__}.{name}": value
        for module in (torch, torch.nn.functional, torch.utils.checkpoint, torch.autograd, torch.func)
        for name, value in vars(module).items()
        if callable(value)
    }
    backends = torch.backends
    return {
        "functions": functions,
        "kernels": {name: torch._C._dispatch_dump(f"aten::{name}") for name in KERNELS},
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)],
        "hooks": (sys.excepthook, sys.unraisablehook, sys.displayhook, threading.excepthook, sys.gettrace()),
        "environment": dict(os.environ),
        "warnings": [entry for entry in warnings.filters if entry != SLOW_VMAP],
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "defaults": (torch.get_default_dtype(), torch.get_default_device()),
        "warn only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "attention": [getattr(backends.cuda, f"{name}_sdp_enabled")() for name in ("flash", "math", "mem_efficient")],
        "fast path": backends.mha.get_fastpath_enabled(),
        "precision": (torch.get_float32_matmul_precision(), backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32),
        "mkldnn": [getattr(holder, "fp32_precision", None) for holder in MKLDNN],
        "cudnn": (backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic),
    }


def changed(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Names of what differs; functions of torch that are imported later are no change."""
    names = [key for key, value in before.items() if key != "functions" and after[key] != value]
    functions = before["functions"].items()
    return names + [name for name, value in functions if after["functions"].get(name) is not value]


def thread_state() -> dict[str, Any]:
    return {
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "autocast": torch.is_autocast_enabled("cpu"),
        "function modes": torch.overrides._len_torch_function_stack(),
    }


def in_another_thread(call: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def test_the_process_is_as_before_during_and_after_a_diagnosis() -> None:
    """During, as another thread sees it: but for flags that torch has for the whole process, and one warning filter."""
    model, x = build("mlp")
    hessdiag.diagnose(model, x)  # torch imports parts of itself when they are called for the first time
    before, own = process_state(), thread_state()
    during: list[dict[str, Any]] = []
    model.register_forward_hook(lambda *_: during.append(in_another_thread(lambda: process_state() | thread_state())))
    hessdiag.diagnose(model, x)
    assert len(during) > 2
    for seen in (during[0], during[len(during) // 2], during[-1]):
        assert {*changed(before, seen)} <= FLAGS
        assert seen["gradients"] == (True, False)
        assert seen["function modes"] == own["function modes"] == 0
    assert not changed(before, process_state())
    assert SLOW_VMAP not in warnings.filters
    assert thread_state() == own


def test_two_threads_that_measure_at_once_leave_everything_as_it_was() -> None:
    models = [build("mlp"), build("residual"), build("attention"), build("tied")]
    alone = [hessdiag.diagnose(model, x) for model, x in models]
    before = process_state()
    kept = [state_of(model, x) for model, x in models]
    with ThreadPoolExecutor(2) as threads:
        measure = lambda order: [k for k in order if hessdiag.diagnose(*models[k]) != alone[k]]  # noqa: E731
        wrong = [*threads.map(measure, ([0, 2] * 2, [1, 3] * 2))]
    assert wrong == [[], []]
    assert not changed(before, process_state())
    assert SLOW_VMAP not in warnings.filters
    assert all(state_of(model, x) == one for (model, x), one in zip(models, kept, strict=True))


def trained(steps: int, step_done: Callable[[int], None] = lambda step: None) -> list[Tensor]:
    """Weights and running statistics of a network that draws at every step."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    history = []
    for step in range(steps):
        optimizer.zero_grad()
        model(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
        history.append(torch.cat([t.detach().flatten().double() for t in model.state_dict().values()]))
        step_done(step)
    return history


def test_a_training_beside_four_threads_that_measure_is_the_same_step_by_step() -> None:
    """Its draws, its weights and its running statistics, for as long as 4 × 8 measurements take."""
    models, x = [nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)) for _ in range(4)], torch.randn(4, 4)
    started, others = threading.Event(), list[Future[None]]()
    hessdiag.diagnose(models[0], x)  # imports what adds filters of warnings
    expected, before = trained(60), process_state()

    def step_done(step: int) -> None:
        started.set()
        if step == 40:  # measurements lie between two steps, and around many
            wait(others, timeout=240)

    def measure(model: nn.Module) -> None:
        started.wait(timeout=60)
        for number in range(8):
            match number:
                case 0:
                    hessdiag.prescribe(model[:1], x)
                case 1:
                    hessdiag.learning_rates(model[:1], x, torch.ones(4, 5), steps=1, batch_size=2)
                case 2:
                    hessdiag.surgery.normalise_output(model, x)
                    hessdiag.surgery.scale_input(model, x)
                    hessdiag.surgery.undo(model)
                case 3:
                    hessdiag.describe(model, x)
                case 4:
                    hessdiag.diagnose(model[:1], x, matrix="hessian", signals=False)
                case _:
                    hessdiag.diagnose(model, x, signals=number == 5)

    with ThreadPoolExecutor(5) as threads:
        others += [threads.submit(measure, model) for model in models]
        found = threads.submit(trained, 60, step_done).result()
        assert [other.result() for other in others] == [None] * 4
    assert all(map(torch.equal, found, expected))
    assert not changed(before, process_state())
    assert SLOW_VMAP not in warnings.filters


@pytest.mark.parametrize("draws", [True, False])
def test_the_global_random_state_is_seeded_for_models_that_draw(draws: bool) -> None:
    noisy = Net(lambda m, x: m.layer(x) + 0 * torch.rand(3), layer=nn.Linear(4, 3))  # draws what it does not use
    model, x = noisy if draws else nn.Linear(4, 3), torch.zeros(2, 4)
    before, states = torch.get_rng_state(), []
    with preserve_state(model, seed=5, call=lambda: model(x)):
        states.append(torch.get_rng_state())
        torch.rand(1) if draws else None
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(states[0], before) != draws


@pytest.mark.parametrize("call", [
    lambda: torch.randn(2), lambda: nn.Dropout(0.5)(torch.ones(3)),
    lambda: torch.ones(3).uniform_(), lambda: torch.randperm(4),
    lambda: nn.LSTM(2, 2, num_layers=2, dropout=0.5)(torch.ones(3, 1, 2)),
])  # fmt: skip
def test_a_call_that_would_draw_is_told_and_draws_nothing(call: Callable[[], object]) -> None:
    before = torch.get_rng_state()
    assert draws_random_numbers(call)
    assert torch.equal(torch.get_rng_state(), before)
    own = torch.Generator().manual_seed(0)
    assert not draws_random_numbers(lambda: torch.rand(2, generator=own) + nn.Dropout(0.5).eval()(torch.ones(2)))


def test_what_is_drawn_is_what_torch_draws_and_the_users_state_is_put_back_also_after_an_error(device: str) -> None:
    torch.manual_seed(7)
    theirs = torch.rand(3, device=device)
    seed_torch(7)
    assert torch.equal(torch.rand(3, device=device), theirs)
    with seeded_rng(7):
        assert torch.equal(torch.rand(3, device=device), theirs)
    torch.manual_seed(1)
    torch.rand(2, device=device)
    torch.manual_seed(1)
    with seeded_rng(7):
        torch.rand(5, device=device)
    with pytest.raises(KeyError), seeded_rng(8):
        raise KeyError
    after = torch.rand(3, device=device)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3, device=device), after)
    # `torch.manual_seed` keeps a stack trace a call, which a long training with measurements would gather.
    kept = len(torch.cuda._queued_calls)
    for seed in range(3):
        with seeded_rng(seed):
            seed_torch(seed)
    assert len(torch.cuda._queued_calls) == kept


OUT_OF_RANGE: dict[str, Callable[[Tensor, Tensor], object]] = {
    "indexed": lambda x, far: x[x[:, 0] == 0][:, far], "written": lambda x, far: x.clone().index_put_((far,), x[0]),
    "gathered": lambda x, far: x.gather(1, far[:, None]), "sent": lambda x, far: x.scatter(1, far[:, None], 1.0),
    "looked up": lambda x, far: F.embedding(far, x), "classes": lambda x, far: F.cross_entropy(x, far),
    "pixels": lambda x, far: F.cross_entropy(x[None, ..., None], far[None, :, None], ignore_index=1),
    "probabilities": lambda x, far: F.binary_cross_entropy(x, x + 2), "drawn": lambda x, far: torch.multinomial(x, 1),
}  # fmt: skip


@pytest.mark.parametrize("call", OUT_OF_RANGE.values(), ids=OUT_OF_RANGE)
def test_what_a_kernel_would_end_with_all_of_cuda_is_refused_before(call, device: str, monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with measuring(nn.Linear(1, 1)), pytest.raises(IndexError, match="all elements should be between"), user_code():
        call(torch.zeros(4, 4, device=device), torch.full((4,), 9, device=device))
    assert float(torch.ones(2, device=device).sum()) == 2
