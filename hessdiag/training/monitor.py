"""A few lines in a training loop that log curvature, balance, learning rates and findings as training goes on."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from hessdiag.arguments import check_kind, check_loss, check_model, check_number, check_whole, kind_of
from hessdiag.data.batch import Batch, BatchDim, Inputs
from hessdiag.data.stream import reader
from hessdiag.derivatives.losses import LossFunction
from hessdiag.diagnosis.diagnose import diagnose
from hessdiag.diagnosis.sharpness import operator
from hessdiag.errors import HessdiagError
from hessdiag.results.findings import GRAVITY
from hessdiag.results.records import write_text
from hessdiag.results.report import Report

if TYPE_CHECKING:
    import pandas as pd

Record = dict[str, float | str]
Log = Callable[[Record, int], object]
QUANTITIES = {"sigma2": "avg_sq_singular_value", "sigma2_stderr": "stderr", "gamma": "gamma", "nu": "nu"}
TOLERANCE = 1e-3  # of the largest eigenvalue
RTOL, MAX_PRODUCTS = 0.1, 40  # of networks with many outputs, where norms are sampled


@dataclass
class Cadence:
    """When a monitor measures, so that it takes no more than its share of the time.

    Training earns time for measurements, `overhead` seconds a second, and a measurement spends what it takes. The next
    one waits until its expected cost, that of the last one, has been earned, and never comes earlier than `every` steps
    after it. At most the cost of two is saved up, so that a pause of training does not buy many. The first measurement,
    at the first step, goes into debt: from the second one on, all measurements together have taken at most `overhead`
    of the training time, as far as their cost was foreseen.
    """

    every: int  # fewest steps from one measurement to the next
    overhead: float  # share of the training time that measurements may take
    clock: Callable[[], float] = time.perf_counter  # seconds
    trained: float = 0.0  # seconds of training so far
    spent: float = 0.0  # seconds of measurements so far
    _cost: float | None = None  # of the last measurement
    _credit: float = 0.0
    _steps: int = 0  # since the last measurement
    _since: float | None = None  # when training went on

    def due(self) -> bool:
        """Count a step of training, and return whether to measure at it."""
        self.begin()
        self._steps += 1
        return self._cost is None or (self._steps >= self.every and self._credit >= self._cost)

    def begin(self) -> None:
        """Credit the training since the last call: what the device still had to do until now was training, too."""
        now = self.clock()
        earned = 0.0 if self._since is None else now - self._since
        self._since = now
        self.trained += earned
        self._credit = min(self._credit + self.overhead * earned, 2 * (self._cost or 0.0))

    def end(self) -> float:
        """Finish a measurement, and return its seconds."""
        now = self.clock()
        seconds = now - (now if self._since is None else self._since)
        self.spent += seconds
        self._credit -= seconds
        self._cost, self._steps, self._since = seconds, 0, now
        return seconds

    def pause(self) -> None:
        """Leave the time until the next step out of the account."""
        self._since = None


class Monitor:
    """Measure γ, ν, σ², learning rates and findings on a few examples now and then, and log them.

    Training is not disturbed: losses and weights are the same, bit for bit, with and without it. The model is measured
    as `diagnose` does, as it trains: without dropout, and with batch normalisation by the statistics of the batch,
    through which derivatives go. Forward hooks of your own are called as well. What cannot be measured ends in one
    warning, and training goes on without; so does a log that fails. In `torch.distributed` rank 0 measures its batch.

    Args:
        model: that is trained; compiled and data-parallel ones are unwrapped.
        loss: that is trained with: `"cross-entropy"`, `"mse"`, `"model"`, or a callable; see `diagnose`.
        every: fewest steps from one measurement to the next; the first one is at the first step.
        overhead: share of the training time that measurements may take. They come less often where `every` would take
            more. The first measurement is paid off later.
        examples: of each measurement, the first ones of the batch; where batch normalisation makes examples meet, the
            whole batch is measured, by some of its examples.
        log: path of a `.csv` file, which is continued where it is there, a function `(record, step)`, or a list.
        class_dim, output, batch_dim: as of `diagnose`.
        seed: of random directions, the same at every measurement.
        optimizer: that steps the model: with each measurement, also log the sharpness of the Hessian of the whole
            batch's mean loss: `sharpness/largest`, `sharpness/step` along the last step u, uᵀHu / ‖u‖², and
            `sharpness/edge`, 2 / rate, above which gradient descent is not stable.

    Attributes:
        history: the records, dicts with the keys `step`, `verdict`, `sigma2/fc1.weight`, `lr/sgd` and so on.
        report: the last measurement as a `Report`, or None.
        stopped: why nothing is measured any more; empty while it is.

    Raises:
        HessdiagError: an argument cannot be used.

    >>> model = nn.Linear(2, 1, bias=False)
    >>> monitor = Monitor(model, loss="mse", every=10)
    >>> for _ in range(3):
    ...     _ = monitor.step(torch.ones(4, 2), torch.zeros(4, 1))
    >>> [(record["step"], record["sigma2/weight"]) for record in monitor.history]
    [(0, 8.0)]
    """

    def __init__(
        self, model: nn.Module, loss: str | LossFunction, *, every: int = 100, overhead: float = 0.05,
        examples: int = 4, log: Any = (), class_dim: int | None = None, output: str | int | None = None,
        batch_dim: BatchDim = 0, seed: int = 0, optimizer: torch.optim.Optimizer | None = None,
    ) -> None:  # fmt: skip
        check_model(model)
        check_loss(loss)
        check_whole("every", every, least=1)
        check_number("overhead", overhead, "pass a share of the training time above 0, such as 0.05", above=0)
        check_whole("examples", examples, least=1)
        check_whole("seed", seed)
        check_kind("optimizer", optimizer, (torch.optim.Optimizer, type(None)), "pass the one that steps the model")
        self.model = unwrapped(model)
        self.history: list[Record] = []
        self.report: Report | None = None
        self.stopped = ""
        how = {"class_dim": class_dim, "output": output, "batch_dim": batch_dim}
        self._options: dict[str, Any] = {"loss": loss, "seed": seed, **how}
        self._read = reader(self.model, batch_dim, "batch", None)
        self._logs = [_log(each) for each in (log if isinstance(log, (list, tuple)) else [log])]
        self._cadence, self._examples = Cadence(every, float(overhead)), examples
        self._steps, self._optimizer, self._start = 0, optimizer, None
        self._before: dict[str, Tensor] = {}

    def step(self, inputs: Inputs, targets: Inputs | None = None, *, step: int | None = None) -> Record | None:
        """Count a training step, and measure the model as it is now where one is due.

        Args:
            inputs, targets: the batch of the step, as `diagnose` takes them.
            step: number of the step in the logs; by default, steps are counted from 0.

        Returns:
            The record of a measurement, or None.

        Raises:
            HessdiagError: `inputs` or `targets` are nothing that `diagnose` takes, at the first step.
        """
        number, self._steps = self._steps if step is None else step, self._steps + 1
        try:
            return self._step(inputs, targets, number)
        finally:
            if self._optimizer is not None and not self.stopped:
                self._before = {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def _step(self, inputs: Inputs, targets: Inputs | None, number: int) -> Record | None:
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if self.stopped or (distributed and torch.distributed.get_rank() > 0) or not self._cadence.due():
            return None
        batch = self._read(inputs, targets) if not self.history else None
        try:
            record = self._measure(batch or self._read(inputs, targets), number)
        except Exception as error:  # of user code, or out of memory: training must go on
            self.stopped = f"{type(error).__name__}: {error}" if not isinstance(error, HessdiagError) else str(error)
            why = f"the monitor could not measure step {number} and measures no more: {self.stopped}"
            warnings.warn(why, stacklevel=3)
            return None
        self.history.append(record)
        self._write(record, number)
        return record

    def pause(self) -> None:
        """Leave the time until the next step out of the account: call it before a validation, say."""
        self._cadence.pause()

    @property
    def share(self) -> float:
        """Seconds of measurements for each second of training so far."""
        return self._cadence.spent / self._cadence.trained if self._cadence.trained > 0 else math.inf

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row a measurement, by step."""
        import pandas as pd

        return pd.DataFrame(self.history or {"step": []}).set_index("step")

    def _measure(self, batch: Batch, number: int) -> Record:
        _check_whole_parameters(self.model)
        first = next(iter(self.model.parameters()), torch.empty(0))
        if first.device.type == "cuda":
            torch.cuda.synchronize(first.device)
        self._cadence.begin()
        batch = batch.map(Tensor.detach).to(first.device, first.dtype)
        meet = any(isinstance(module, _BatchNorm) and module.training for module in self.model.modules())
        few = batch if meet else batch.narrow(0, self._examples)
        how = {"progress": False, "rtol": RTOL, "max_products": MAX_PRODUCTS, **self._options}
        self.report = diagnose(self.model, *few.given, **how)
        record: Record = {"step": number, **flat(self.report), **self._sharpness(batch)}
        cost = {"monitor/seconds": self._cadence.end(), "monitor/examples": float(few.size)}
        return record | cost | {"monitor/share": self.share}

    def _sharpness(self, batch: Batch) -> Record:
        """λ_max, found from where it was found last, λ along the last step, and 2 / rate."""
        if self._optimizer is None:
            return {}
        from scipy.sparse.linalg import eigsh

        H = operator(self.model, *batch.given, matrix="hessian", **self._options)
        largest, self._start = eigsh(H, k=1, which="LA", v0=self._start, tol=TOLERANCE)
        found: Record = {"sharpness/largest": float(largest[0]), "sharpness/step": math.nan}
        if self._before:
            u = torch.cat([(H.at[name] - self._before[name]).flatten() for name in H.names]).unsqueeze(1)
            size = float(u.square().sum())
            found["sharpness/step"] = float((u * H.torch_matmat(u)).sum()) / size if size > 0 else math.nan
        return found | {"sharpness/edge": 2 / self._optimizer.param_groups[0]["lr"]}

    def _write(self, record: Mapping[str, float | str], number: int) -> None:
        """Hand the record to every log; one that fails is left out from then on."""
        for log in list(self._logs):
            try:
                log({key: value for key, value in record.items() if key != "step"}, number)
            except Exception as error:  # noqa: PERF203, of user code, or a full disk: training must go on
                self._logs.remove(log)
                name = getattr(log, "__name__", type(log).__name__)
                why = f"the log {name} failed and gets no more records: {type(error).__name__}: {error}"
                warnings.warn(why, stacklevel=4)


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the module inside `torch.compile`'s and data-parallel wrappers, which has the plain names of blocks."""
    wrappers = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    inner = getattr(model, "_orig_mod", model.module if isinstance(model, wrappers) else None)
    return model if inner is None else unwrapped(inner)


def _check_whole_parameters(model: nn.Module) -> None:
    """Refuse sharded parameters: this rank would wait for others, which are not measuring, for ever."""
    sharded = [name for name, p in model.named_parameters() if hasattr(p, "device_mesh")]
    sharded += [name for name, m in model.named_modules() if type(m).__name__ == "FullyShardedDataParallel"]
    if sharded:
        raise HessdiagError(f"{sharded[0] or 'the model'} is sharded among processes: watch a model that is not")


def flat(report: Report) -> Record:
    """Name every number of a report by quantity and block, `sigma2/fc1.weight`, the verdict and its findings.

    The same network gives the same keys in the same order, whatever was found.
    """
    counts, verdict = Counter(finding.severity for finding in report.findings), report.verdict
    record: Record = {"verdict": verdict.level, "balance": verdict.balance.level}
    record["findings"] = " ".join(dict.fromkeys(finding.rule for finding in report.findings))
    record |= {f"findings/{severity}": float(counts[severity]) for severity in GRAVITY}
    if report.signals is not None:
        record["loss"] = report.signals.initial_loss
    record |= {f"spread/{key}": report.spread[QUANTITIES[key]] for key in ("sigma2", "gamma", "nu")}
    for key, attribute in QUANTITIES.items():
        record |= {f"{key}/{block.name}": float(getattr(block, attribute)) for block in report.blocks}
    return record


def _log(asked: Any) -> Log:
    if isinstance(asked, (str, os.PathLike)):
        return csv_log(asked)
    if callable(asked):
        return asked  # type: ignore[no-any-return]
    raise HessdiagError(f"log is {kind_of(asked)}: pass the path of a .csv file, or a function (record, step)")


def csv_log(path: str | os.PathLike[str]) -> Log:
    """Return a log that writes one row a measurement into a CSV file; a file that is there is continued.

    Raises:
        HessdiagError: it is no `.csv` file in a folder that is there.
    """
    if Path(path).suffix != ".csv":
        raise HessdiagError(f"log {os.fspath(path)!r}: name a file that ends with .csv")
    if not Path(path).parent.is_dir():
        raise HessdiagError(f"log {os.fspath(path)!r}: the folder {str(Path(path).parent)!r} does not exist, make it")

    def write_csv(record: Record, step: int) -> None:
        import pandas as pd

        row, file = pd.DataFrame([{"step": step, **record}]), Path(path)
        before = [pd.read_csv(file, dtype=str)] if file.exists() else []  # columns may be new
        write_text(file, pd.concat([*before, row]).to_csv(index=False))

    return write_csv
