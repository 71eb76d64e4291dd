"""Where records go: CSV files and TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from hessdiag.training.monitor_logs import CsvLog, TensorBoardLog, logs_of


def test_a_csv_file_has_a_row_a_measurement(tmp_path: Path) -> None:
    log = CsvLog(tmp_path / "log.csv")
    log({"verdict": "healthy", "nu/fc.weight": 0.1}, 0)
    log({"verdict": "faulty, no doubt", "nu/fc.weight": float("nan")}, 5)
    assert (tmp_path / "log.csv").read_text() == 'step,verdict,nu/fc.weight\n0,healthy,0.1\n5,"faulty, no doubt",nan\n'


def test_new_columns_are_added_to_all_rows(tmp_path: Path) -> None:
    log = CsvLog(tmp_path / "log.csv")
    log({"a": 1.0}, 0)
    log({"a": 2.0, "b": 3.0}, 1)
    log({"b": 4.0}, 2)
    frame = pd.read_csv(tmp_path / "log.csv", index_col="step")
    assert frame["a"].tolist()[:2] == [1.0, 2.0]
    assert frame["b"].tolist()[1:] == [3.0, 4.0]
    assert frame.isna().to_numpy().tolist() == [[False, True], [False, False], [True, False]]


def test_a_file_that_is_there_is_continued(tmp_path: Path) -> None:
    CsvLog(tmp_path / "log.csv")({"a": 1.0, "b": 2.0}, 0)
    CsvLog(tmp_path / "log.csv")({"b": 3.0, "c": 4.0}, 7)
    assert (tmp_path / "log.csv").read_text() == "step,a,b,c\n0,1.0,2.0,\n7,,3.0,4.0\n"


class Writer:
    """What a `SummaryWriter` is asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, object, int]] = []

    def add_scalar(self, tag: str, value: float, step: int) -> None:
        self.seen.append(("scalar", tag, value, step))

    def add_text(self, tag: str, text: str, step: int) -> None:
        self.seen.append(("text", tag, text, step))


def test_tensorboard_gets_numbers_as_scalars_and_words_as_texts() -> None:
    writer = Writer()
    (log,) = logs_of(writer)
    log({"verdict": "healthy", "lr/sgd": 0.5}, 3)
    assert writer.seen == [("text", "verdict", "healthy", 3), ("scalar", "lr/sgd", 0.5, 3)]


def test_tensorboard_reads_them_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        TensorBoardLog(writer)({"verdict": "healthy", "sigma2/fc1.weight": 0.5}, 3)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("sigma2/fc1.weight")] == [(3, 0.5)]
    assert events.Tensors("verdict/text_summary")[0].tensor_proto.string_val == [b"healthy"]


class Run:
    """What a run of Weights & Biases is asked for."""

    def __init__(self) -> None:
        self.seen: list[tuple[dict[str, float | str], int | None]] = []

    def log(self, data: dict[str, float | str], step: int | None = None) -> None:
        self.seen.append((data, step))


def test_the_log_method_of_a_run_is_a_log() -> None:
    run = Run()
    (log,) = logs_of(run.log)
    log({"verdict": "healthy", "lr/sgd": 0.5}, 3)
    assert run.seen == [({"verdict": "healthy", "lr/sgd": 0.5}, 3)]


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_keeps_them_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=str(tmp_path), project="hessdiag") as run:
        (log,) = logs_of(run.log)
        log({"verdict": "healthy", "sigma2/fc1.weight": 0.5}, 3)
    (kept,) = tmp_path.rglob("run-*.wandb")
    assert b"sigma2/fc1.weight" in kept.read_bytes()
