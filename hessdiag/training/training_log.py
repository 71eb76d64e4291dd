"""What is written down of a training while it runs: two CSV files, and TensorBoard's where that is installed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from hessdiag.results.files import write_text
from hessdiag.results.training_runs import Epoch, accuracy_csv, throughput_csv


class TrainingLog:
    """Files of one training: `NAME.csv`, `NAME-throughput.csv` and, for TensorBoard, the folder `NAME`.

    Args:
        folder: an existing one.
        name: of the training.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.board = open_board(folder / name)
        self.shown = 0  # epochs that are on the board

    def __call__(self, epochs: Sequence[Epoch]) -> None:
        """Write all epochs so far, whole or not at all."""
        write_text(self.folder / f"{self.name}.csv", accuracy_csv(epochs))
        write_text(self.folder / f"{self.name}-throughput.csv", throughput_csv(epochs))
        if self.board is None:
            return
        for epoch in epochs[self.shown :]:
            for key, value in asdict(epoch).items():
                if key != "number":
                    self.board.add_scalar(key, value, epoch.number)
        self.board.flush()
        self.shown = len(epochs)

    def close(self) -> None:
        """Close the files."""
        if self.board is not None:
            self.board.close()


def open_board(folder: Path) -> Any:
    """Return a writer whose steps replace those that an earlier run wrote there; None without TensorBoard."""
    try:
        tensorboard = import_module("torch.utils.tensorboard")
    except ModuleNotFoundError:
        return None
    return tensorboard.SummaryWriter(str(folder), purge_step=0)
