"""The monitor in a training loop: what it measures, when it stops, what it refuses, and what its logs hold."""

import json
import warnings
from pathlib import Path
from typing import Any

import edge_of_stability
import monitor_figure
import pytest
import torch
from torch import Tensor, nn

import hessdiag
from hessdiag import HessdiagError, Monitor
from hessdiag.training.monitor import Cadence, csv_log, unwrapped
from tests.networks import Net
from tests.oracles import hessian_blocks, joined
from tests.pages import read


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)).double()


def data(count: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(count, 4, generator=generator).double(), torch.randint(3, (count,), generator=generator)


def test_a_record_has_the_numbers_of_a_report_on_the_first_examples() -> None:
    model, (x, t) = network(), data()
    monitor = Monitor(model, "cross-entropy", examples=3)
    record = monitor.step(x, t)
    assert record is not None
    report = hessdiag.diagnose(model, x[:3], t[:3], loss="cross-entropy")
    for block in report:
        found = [record[f"{key}/{block.name}"] for key in ("sigma2", "gamma", "nu")]
        assert found == pytest.approx([block.avg_sq_singular_value, block.gamma, block.nu], rel=1e-10)
    assert record["spread/sigma2"] == pytest.approx(report.spread["avg_sq_singular_value"], rel=1e-10)
    assert (record["verdict"], record["balance"]) == (report.verdict.level, report.verdict.balance.level)
    assert record["monitor/examples"] == 3
    assert monitor.report is not None
    assert monitor.report.batch_size == 3


def test_history_follows_the_weights() -> None:
    model, (x, t) = network(), data()
    monitor = Monitor(model, nn.CrossEntropyLoss(), every=2, overhead=1e9, examples=8)
    assert monitor.to_dataframe().empty
    for number in range(5):
        monitor.step(x, t, step=10 * number)
        model[2].weight.data.mul_(2.0)
    frame = monitor.to_dataframe()
    assert list(frame.index) == [0, 20, 40]  # as numbered by the caller
    assert frame["nu/2.weight"].nunique() == 3
    assert frame["verdict"].map(type).eq(str).all()


def test_a_model_that_cannot_be_measured_is_said_once_and_left_alone() -> None:
    mixes = Net(lambda m, x: m.fc(x - x.mean(0)), fc=nn.Linear(4, 3)).double()  # in evaluation mode too
    monitor = Monitor(mixes, "cross-entropy", every=1)
    with pytest.warns(UserWarning, match="measures no more: an example on its own") as caught:
        assert monitor.step(*data()) is None
    assert caught[0].filename == __file__
    assert monitor.stopped.startswith("an example on its own")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            assert monitor.step(*data()) is None
    assert monitor.history == []


@pytest.mark.parametrize("diverges", [True, False])
def test_later_failures_end_it_and_not_the_training(diverges: bool) -> None:
    model, (x, t) = network(), data()
    monitor = Monitor(model, "cross-entropy", every=1, overhead=1e9)
    monitor.step(x, t)
    model[0].weight.data.mul_(float("nan") if diverges else 1.0)
    message = "could not measure step 1.*NaN" if diverges else "first dimension must be the same"
    with pytest.warns(UserWarning, match=message):
        assert monitor.step(x, t if diverges else t[:3]) is None
    assert len(monitor.history) == 1


def test_a_log_that_fails_is_said_once_and_left_out_and_none_can_change_the_history() -> None:
    def full(record: Any, step: int) -> None:
        raise OSError("no space left on device")

    seen: list[int] = []
    log = [full, lambda record, step: seen.append(step), lambda record, step: record.clear()]
    monitor = Monitor(network(), "cross-entropy", every=1, overhead=1e9, log=log)
    with pytest.warns(UserWarning, match="the log full failed and gets no more records: OSError: no space left"):
        monitor.step(*data())
    monitor.step(*data())
    assert seen == [0, 1]
    assert ["verdict" in record for record in monitor.history] == [True, True]


def test_wrong_arguments_and_batches_are_refused() -> None:
    for options, message in (
        ({"model": nn.Linear}, "model is the class Linear"), ({"loss": 3}, "loss 3: pass a name"),
        ({"every": 2.5}, "every 2.5: pass at least 1"), ({"overhead": "5%"}, "overhead '5%': pass a share"),
        ({"examples": 0}, "examples 0: pass at least 1"), ({"seed": "a"}, "seed 'a': pass a whole number"),
        ({"optimizer": 3}, "optimizer is an int: pass the one that steps the model"),
        ({"log": 3}, "log is an int: pass the path of a .csv file"),
        ({"log": "runs"}, "name a file that ends with .csv"),
        ({"log": "nowhere/log.csv"}, "the folder 'nowhere' does not exist"),
    ):  # fmt: skip
        with pytest.raises(HessdiagError) as caught:
            Monitor(**{"model": network(), "loss": "mse"} | options)  # type: ignore[arg-type]
        assert message in str(caught.value)
    ones = torch.ones(2, 4)
    for inputs, targets, said in (
        ([[1.0]], None, "inputs hold no tensor"),
        (3, None, "inputs are an int"),
        (ones, [1, 2], "targets are a list"),
        (ones, torch.ones(3), "first dimension must be the same"),
    ):
        with pytest.raises(HessdiagError, match=said):
            Monitor(network(), "cross-entropy").step(inputs, targets)  # type: ignore[arg-type]


def test_sharpness_of_the_whole_batch_and_along_the_last_step() -> None:
    model, (x, t) = network(), data()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    monitor = Monitor(model, "cross-entropy", every=1, overhead=1e9, examples=2, optimizer=optimizer)
    first = monitor.step(x, t)
    before = torch.cat([p.detach().flatten() for p in model.parameters()])
    nn.functional.cross_entropy(model(x), t).backward()
    optimizer.step()
    record = monitor.step(x, t)
    assert first is not None
    assert record is not None
    u = torch.cat([p.detach().flatten() for p in model.parameters()]) - before
    names = [name for name, _ in model.named_parameters()]
    H = joined(hessian_blocks(model, x, t, nn.functional.cross_entropy, names))
    assert record["sharpness/largest"] == pytest.approx(float(torch.linalg.eigvalsh(H)[-1]), rel=1e-5)
    assert record["sharpness/step"] == pytest.approx(float(u @ H @ u / (u @ u)), rel=1e-10)
    assert (record["sharpness/edge"], list(first)) == (4.0, list(record))


def test_kept_figures_are_drawn() -> None:
    history = json.loads(read("figures/edge_of_stability.json"))
    late = [record["sharpness/largest"] for record in history if record["step"] >= 250]
    assert all(170 <= largest <= 230 for largest in late)
    assert history[0]["sharpness/largest"] < 100
    assert len(edge_of_stability.draw(history).axes[0].get_lines()) == 3
    measured = json.loads(read("figures/monitor.json"))
    assert [len(axes.get_lines()) for axes in monitor_figure.draw(measured).axes] == [4, 4]
    assert "3× (geometric) to 1,200× (fan-out)" in monitor_figure.title_of(measured)


def test_other_precisions_are_measured_wrappers_come_off_and_other_ranks_do_nothing(monkeypatch) -> None:
    x, t = data(1)
    record = Monitor(network(), "cross-entropy").step(x.half(), t)
    assert record
    assert record["monitor/examples"] == 1
    model = network()
    assert unwrapped(torch.compile(nn.DataParallel(model), backend="eager")) is model
    assert unwrapped(model) is model
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 1)
    assert Monitor(network(), "cross-entropy").step(*data()) is None


def test_a_csv_file_has_a_row_a_measurement_and_is_continued(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    csv_log(path)({"verdict": "no-problem", "findings": "", "nu/fc.weight": 0.1 + 0.2}, 0)
    csv_log(path)({"verdict": "faulty, no doubt", "findings": "HD101", "nu/fc.weight": float("nan")}, 5)
    rows = 'step,verdict,findings,nu/fc.weight\n0,no-problem,,0.30000000000000004\n5,"faulty, no doubt",HD101,\n'
    assert path.read_text() == rows
    for step in (7, 8):
        csv_log(path)({"nu/fc.weight": 3.0, "c": 4.0}, step)
    wider = rows.replace("weight\n", "weight,c\n").replace("4\n", "4,\n").replace("HD101,\n", "HD101,,\n")
    assert path.read_text() == f"{wider}7,,,3.0,4.0\n8,,,3.0,4.0\n"


class Training:
    """Steps of a second; a measurement takes `each` seconds."""

    def __init__(self, *, every: int = 10, overhead: float = 0.05, each: float) -> None:
        self.now, self.each = 0.0, each
        self.cadence = Cadence(every, overhead, clock=lambda: self.now)

    def run(self, steps: int) -> list[int]:
        measured = []
        for number in range(steps):
            if self.cadence.due():
                self.cadence.begin()
                self.now += self.each
                self.cadence.end()
                measured.append(number)
            self.now += 1.0
        return measured


def test_a_measurement_waits_until_it_has_been_earned() -> None:
    """A cheap one comes at every so many steps; 20 steps earn a dear one, and the first one is in debt."""
    assert Training(each=2e-4).run(35) == [0, 10, 20, 30]
    assert Training(each=1.0).run(101) == [0, 40, 60, 80, 100]


@pytest.mark.parametrize("overhead", [0.01, 0.5])
@pytest.mark.parametrize("each", [0.01, 0.3, 4.0])
@pytest.mark.parametrize("every", [1, 10])
def test_measurements_keep_to_their_share_from_the_second_on(overhead: float, each: float, every: int) -> None:
    run, measured = Training(overhead=overhead, each=each, every=every), 0
    for _ in range(2000):
        measured += len(run.run(1))
        if measured > 1:
            assert run.cadence.spent <= overhead * run.cadence.trained * (1 + 1e-9)
    assert measured > 1 or each / overhead > 100


def test_what_is_earned_is_spent_and_a_pause_earns_nothing() -> None:
    run = Training(each=3.0, every=1)
    run.run(5000)
    assert run.cadence.spent / run.cadence.trained == pytest.approx(0.05, rel=0.03)
    run = Training(each=1.0, every=1)
    assert run.run(3) == [0]
    run.cadence.pause()
    run.now += 1e6
    assert run.run(3) == []
    assert run.cadence.trained == pytest.approx(4.0)  # without the third step, during which training paused
    run.now += 1e6
    assert run.run(10) == [0, 1]
