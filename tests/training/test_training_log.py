"""The files that a training writes while it runs."""

from pathlib import Path

import pytest

from hessdiag.results.training_runs import Epoch
from hessdiag.training import training_log
from hessdiag.training.training_log import TrainingLog

EPOCHS = [
    Epoch(
        number=number,
        rate=0.1,
        train_loss=2.0 / number,
        train_accuracy=0.25,
        validation_loss=1.5,
        validation_accuracy=0.5,
        images_per_second=100.0 + number,
    )
    for number in (1, 2)
]


def test_two_tables_of_all_epochs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_log, "open_board", lambda folder: None)
    log = TrainingLog(tmp_path, "it")
    log(EPOCHS[:1])
    log(EPOCHS)
    log.close()
    assert (tmp_path / "it.csv").read_text() == (
        "epoch,rate,train_loss,train_accuracy,validation_loss,validation_accuracy\n"
        "1,0.1,2.0,0.25,1.5,0.5\n2,0.1,1.0,0.25,1.5,0.5\n"
    )
    assert (tmp_path / "it-throughput.csv").read_text() == "epoch,images_per_second\n1,101.0\n2,102.0\n"


def test_without_tensorboard_there_is_no_board(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError("No module named 'tensorboard'")

    monkeypatch.setattr(training_log, "import_module", missing)
    assert training_log.open_board(tmp_path / "board") is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # TensorBoard's own
def test_a_run_that_goes_on_shows_every_epoch_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for epochs in (EPOCHS[:1], EPOCHS):  # the second run begins with what the first one did
        log = TrainingLog(tmp_path, "it")
        log(epochs)
        log.close()
    board = EventAccumulator(str(tmp_path / "it"))
    board.Reload()
    found = [(event.step, event.value) for event in board.Scalars("train_loss")]
    assert found == [(1, 2.0), (2, 1.0)]
    assert set(board.Tags()["scalars"]) >= {"validation_accuracy", "images_per_second", "rate"}
