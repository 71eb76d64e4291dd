"""A network and its batches made ready to be measured: built, initialised or loaded, moved, and tried once."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from hessdiag.arguments import as_device, as_dtype
from hessdiag.data.batch import Batch
from hessdiag.data.seeds import stream
from hessdiag.data.stream import Read, Tally, reader
from hessdiag.data.stream import batches as split
from hessdiag.derivatives.targets import check_class_dim
from hessdiag.errors import HessdiagError
from hessdiag.loading.initialisation import AS_BUILT, Say, Scheme, name_of, resolve
from hessdiag.loading.user_code import NamedFunction
from hessdiag.loading.weights import load_weights
from hessdiag.models.sources import ModelSource, Network
from hessdiag.network.preserve import preserve_state
from hessdiag.network.torch_state import seeded_rng
from hessdiag.network.trace import try_model


@dataclass(frozen=True)
class Prepared:
    """What `hessdiag.diagnose` is given, and where it came from."""

    module: nn.Module  # the network, on its device and in its dtype
    batch: Batch  # the first inputs and targets, likewise
    init: str  # the initialisation, "as built", or the file that the weights were loaded from
    data: str  # "random normal", "random tokens", or the function that gave the batch
    more: Iterator[Batch]  # later batches, of which each is read once
    how: Mapping[str, Any]  # options of what measures: how it reads inputs and outputs
    tally: Tally  # how many batches were read so far, of how many

    def batches(self) -> Iterator[tuple[Any, Any]]:
        """All batches as `hessdiag.diagnose` takes them."""
        return (batch.given for batch in chain([self.batch], self.more))


def prepare(
    source: ModelSource, *, batch_size: int, init: Scheme = AS_BUILT, weights: str = "",
    data: NamedFunction | None = None, batches: int | None = 1, loss: str | None = None, class_dim: int | None = None,
    mode: str = "train", seed: int = 0, device: str = "cpu", dtype: torch.dtype = torch.float32,
    say: Say = lambda message: None,
) -> Prepared:  # fmt: skip
    """Build a network once and a batch for it; everything random follows from the seed, on every device alike.

    Args:
        source, init: see `hessdiag.models.resolve_model` and `hessdiag.loading.initialisation`.
        batch_size: examples; of given data the first ones.
        weights: file of weights to load instead.
        data: function without arguments that returns a batch, an iterable of batches or a `Dataset`, see
            `hessdiag.data.stream`; None draws random inputs, and random targets where the loss compares with some. Its
            attributes `batch_dim` and `examples` are those of `hessdiag.diagnose`.
        batches: how many of its batches to read; None reads all.
        loss, class_dim, mode, seed, device, dtype: of the measurement.
        say: told what a user's initialisation was called with, and what had to be unwrapped of the weights.
    """
    where, dtype = as_device(device), as_dtype(dtype)
    origin = "as the file left it" if source.built and init == AS_BUILT else name_of(init)
    network = random_network(source, init=init, seed=seed, say=lambda note: say(f"hessdiag: --init {origin}: {note}"))
    module = network.module.to(where, dtype)
    if weights:
        for note in load_weights(module, weights):
            say(f"hessdiag: --weights {weights}: {note}")
        origin = f"loaded from {Path(weights).name}"
    function = None if data is None else data.function
    batch_dim, examples = getattr(function, "batch_dim", 0), getattr(function, "examples", "batch")
    if data is None:
        read = iter([random_inputs(network, source, batch_size=batch_size, seed=seed)])
        tally, origin_of_data = Tally(1, 1), network.inputs.description if network.inputs else ""
    else:
        tally, origin_of_data = Tally(), data.reference
        reads = reader(module, batch_dim, "either" if examples == "batch" else examples, None)
        read = read_batches(data, batch_size=batch_size, most=batches, tally=tally, read=reads, seed=seed)
    batch = replace(next(read).to(where, dtype), output=source.output)
    more = (later.to(where, dtype) for later in read)
    if data is None:
        with preserve_state(module, seed=0, mode=mode, call=lambda: batch.narrow(0, 2).run(module)), torch.no_grad():
            outputs = try_model(module, batch, name=f"model {source.name!r}").outputs
        usual = class_dim if class_dim is not None else outputs.class_dim
        batch = replace(batch, targets=random_targets(outputs.y, batch.size, loss=loss, class_dim=usual, seed=seed))
    how = {"class_dim": class_dim, "batch_dim": batch_dim, "examples": examples, "output": source.output}
    return Prepared(module, batch, origin, origin_of_data, more, how, tally)


def random_network(source: ModelSource, *, init: Scheme, seed: int, say: Say = lambda message: None) -> Network:
    """A new network from a seed; torch's global random state stays as it was."""
    initialise = None if init == AS_BUILT else resolve(init, say=say)  # refused before anything is built
    with seeded_rng(stream(seed, "network").initial_seed()):
        network = source.build()
    if initialise is not None:
        initialise(network.module, generator=stream(seed, "weights"))
    return network


def random_inputs(network: Network, source: ModelSource, *, batch_size: int, seed: int) -> Batch:
    """Inputs of the kind that the network reads, on the CPU, without targets."""
    if network.inputs is None:
        message = f"model {source.name!r} does not say the shape of its inputs: pass input_size=(3, 32, 32), say"
        raise HessdiagError(f"{message} (--input-size 3,32,32), or return (module, input_size) from its factory")
    return Batch.of(network.inputs(batch_size, stream(seed, "inputs")), None)


def random_targets(y: Tensor, batch_size: int, *, loss: str | None, class_dim: int | None, seed: int) -> Tensor | None:
    """Random labels, or values from N(0, 1), for outputs like `y` (B, *out); None where the loss compares with none."""
    generator = stream(seed, "targets")
    if loss == "mse":
        return torch.randn(batch_size, *y.shape[1:], generator=generator).to(y)
    if loss == "cross-entropy":
        dim = check_class_dim(y, 1 if y.dim() == 2 and class_dim is None else class_dim)
        positions = y.shape[1:dim] + y.shape[dim + 1 :]
        return torch.randint(y.shape[dim], (batch_size, *positions), generator=generator).to(y.device)
    return None


def read_batches(
    function: NamedFunction, *, batch_size: int, most: int | None, tally: Tally, read: Read = Batch.of, seed: int = 0
) -> Iterator[Batch]:
    """The batches that a user's function gives, up to `most`; later ones are never asked for. Of a single batch the
    first `batch_size` examples are taken; of several, each is taken whole. While the function runs, torch's random
    numbers are from the seed, as where a DataLoader shuffles.
    """
    function.check_arguments({})

    def given() -> Iterator[Batch]:
        yield from split(function(), label=function.label, batch_size=batch_size, tally=tally, read=read)

    source, state = islice(given(), most), stream(seed, "data").get_state()
    while True:
        with torch.random.fork_rng(devices=[]), function.running():
            torch.set_rng_state(state)
            batch = next(source, None)
            state = torch.get_rng_state()
        if batch is None:
            return
        yield batch.narrow(0, batch_size) if most == 1 else batch
