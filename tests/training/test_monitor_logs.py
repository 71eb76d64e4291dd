"""Where records go: CSV files and TensorBoard."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from hessdiag.training.monitor import CsvLog, TensorBoardLog, logs_of
from tests.training.offline_runs import read_offline_run


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


def test_tensorboard_gets_numbers_as_scalars_and_words_as_texts(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(tmp_path)) as writer:
        (log,) = logs_of(writer)
        assert isinstance(log, TensorBoardLog)
        log({"verdict": "healthy", "sigma2/fc1.weight": 0.5}, 3)
        log({"verdict": "faulty", "sigma2/fc1.weight": 0.25}, 7)
    events = EventAccumulator(str(tmp_path)).Reload()
    assert events.Tags()["scalars"] == ["sigma2/fc1.weight"]
    assert [(e.step, e.value) for e in events.Scalars("sigma2/fc1.weight")] == [(3, 0.5), (7, 0.25)]
    assert [(e.step, e.tensor_proto.string_val) for e in events.Tensors("verdict/text_summary")] == [
        (3, [b"healthy"]),
        (7, [b"faulty"]),
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_log_method_of_a_run_of_weights_and_biases_is_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=str(tmp_path), project="hessdiag") as run:
        (log,) = logs_of(run.log)
        log({"verdict": "healthy", "sigma2/fc1.weight": 0.5}, 3)
        assert run.step == 3
        log({"verdict": "faulty", "sigma2/fc1.weight": 0.25}, 7)
        assert run.step == 7
    content = read_offline_run(tmp_path, last=b"0.25")
    for entry in (b"sigma2/fc1.weight", b'"healthy"', b'"faulty"', b"0.5", b"0.25"):
        assert entry in content
