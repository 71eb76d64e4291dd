"""Training with a monitor is training without one, bit for bit."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

from hessdiag import Monitor
from tests.networks import Net
from tests.unchanged import bits

STEPS = 4


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))


def convolutions() -> nn.Module:
    layers = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(0.2), nn.Conv2d(4, 4, 3, bias=False)]
    return nn.Sequential(*layers, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def small_gpt() -> nn.Module:
    config = GPT2Config(vocab_size=11, n_positions=6, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    return Net(lambda m, tokens: m.gpt(tokens).logits, gpt=GPT2LMHeadModel(config))


def images(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(20, *shape, generator=generator), torch.randint(3, (20,), generator=generator)


def texts(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(11, (20, *shape), generator=torch.Generator().manual_seed(1))
    return tokens, tokens.roll(-1, 1)


# Network, data, their shape and the dimension of the classes.
CASES: dict[str, Any] = {"batch norm": (convolutions, images, (2, 6, 6), None), "gpt": (small_gpt, texts, (6,), -1)}


def batches(data: tuple[Tensor, Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
    loader = DataLoader(TensorDataset(*data), batch_size=5, shuffle=True)  # its order is of torch's random state
    while True:
        for x, t in loader:
            noisy = x + random.random() + np.random.rand() if x.is_floating_point() else x  # noqa: NPY002, as users do
            yield noisy.float() if x.is_floating_point() else x, t


def train(
    case: str, *, monitored: bool, where: str = "before", amp: bool = False, wrap: Any = lambda model: model
) -> tuple[list[bytes], Any, Any]:
    build, make, shape, class_dim = CASES[case]
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    model = wrap(build())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    options: dict[str, Any] = {"every": 3, "overhead": 1e9, "class_dim": class_dim}
    monitor = Monitor(model, "cross-entropy", **options) if monitored else None
    losses = []
    for _, (x, t) in zip(range(STEPS), batches(make(shape)), strict=False):
        if monitor and where == "before":
            monitor.step(x, t)
        with torch.autocast("cpu", enabled=amp):
            loss = F.cross_entropy(model(x).flatten(0, -2), t.flatten())
            if monitor and where == "between":  # the graph of the backward pass holds weights and statistics
                monitor.step(x, t)
        loss.backward()  # `.grad` adds up over steps: it is as it was after a measurement
        if monitor and where == "after":
            monitor.step(x, t)
        optimizer.step()
        losses.append(bits(loss))
    return losses, {name: bits(value) for name, value in model.state_dict().items()}, monitor


@pytest.mark.parametrize("amp", [False, True], ids=["float32", "autocast"])
@pytest.mark.parametrize("case", CASES)
def test_losses_and_weights_are_the_same(case: str, amp: bool) -> None:
    losses, state, _ = train(case, monitored=False, amp=amp)
    for where in ("before", "between", "after") if case == "batch norm" and not amp else ("between",):
        found, weights, monitor = train(case, monitored=True, where=where, amp=amp)
        assert (monitor.stopped, [record["step"] for record in monitor.history]) == ("", [0, 3])
        assert (found, weights) == (losses, state)


def draws(m: Any, x: Tensor) -> Tensor:
    """Advances all random generators in each forward pass, also in evaluation mode, without using what comes."""
    random.random(), np.random.rand(), torch.rand(1)  # noqa: NPY002, as users do
    return m.body(x)  # type: ignore[no-any-return]


def test_all_random_generators_go_on_where_they_were() -> None:
    model, (x, t) = Net(draws, body=mlp()), images((6,))

    def states() -> tuple[object, bytes, bytes]:
        return random.getstate(), np.random.get_state()[1].tobytes(), bits(torch.get_rng_state())  # type: ignore[union-attr]  # noqa: NPY002

    before = states()
    assert Monitor(model, "cross-entropy").step(x, t)
    assert states() == before
    model(x)
    assert [a == b for a, b in zip(states(), before, strict=True)] == [False, False, False]


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=(tmp_path / "store").as_uri(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_process")
def test_sharded_parameters_are_not_gathered_by_one_process_alone() -> None:
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (1,))
    model, (x, t) = torch.distributed.fsdp.fully_shard(mlp(), mesh=mesh), images((6,))
    monitor = Monitor(model, "cross-entropy")
    with pytest.warns(UserWarning, match=r"0\.weight is sharded among processes"):
        assert monitor.step(x, t) is None


@pytest.mark.usefixtures("one_process")
@pytest.mark.parametrize("compiled", [False, True], ids=["data parallel", "compiled"])
def test_a_wrapped_model_trains_the_same_and_is_not_compiled_again(compiled: bool) -> None:
    def wrap(model: nn.Module) -> Any:
        return torch.compile(model, backend="eager") if compiled else nn.parallel.DistributedDataParallel(model)

    graphs, found = [], []
    for monitored in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        *trained, monitor = train("batch norm", monitored=monitored, where="between", wrap=wrap)
        found.append(trained)
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert [record["step"] for record in monitor.history] == [0, 3], monitor.stopped
    assert "sigma2/0.weight" in monitor.history[0]
    assert (found[0], graphs[0], graphs[0] > 0) == (found[1], graphs[1], compiled)
