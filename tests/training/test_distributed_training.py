"""Training on a folder of images: against a plain loop, by two processes, and killed in between."""

from __future__ import annotations

import copy
import csv
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from hessdiag.__main__ import main
from hessdiag.datasets.image_folder import ImageSplit, read_image_split
from hessdiag.errors import HessdiagError
from hessdiag.execution.ranks import ALONE, Ranks
from hessdiag.models.rescalenet import RescaleNet
from hessdiag.results.training_runs import TrainingRun, TrainingRuns
from hessdiag.training.distributed_training import DistributedTraining, Place, centre_on, train_distributed
from hessdiag.training.shared_minibatches import Minibatches, load, training_minibatches, validation_minibatches
from hessdiag.training.training_state import load_state, save_state
from tests.training.images import write_images

CPU = torch.device("cpu")
SETTINGS = DistributedTraining(epochs=3, batch_size=8, rate=0.05, side=16)
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}  # as here: sums round otherwise with more threads
COMMAND = "reproduce resnet --part training --quick --data-dir images --networks rescalenet"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    write_images(folder / "images")
    return folder


@pytest.fixture(scope="module")
def split(folder: Path) -> ImageSplit:
    return read_image_split(folder / "images")


def network() -> nn.Module:
    torch.manual_seed(0)
    return RescaleNet(14, 2, side=16, width=0.25, dropout=0.0)


def test_it_is_the_plain_loop(split: ImageSplit) -> None:
    trained, plain = network(), network()
    epochs = train_distributed(trained, split, SETTINGS, seed=3, place=Place())
    centre_on(plain, split, SETTINGS, seed=3, device=CPU)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [1, 2], gamma=0.1)
    for number, epoch in enumerate(epochs):
        losses, hits = [], []
        assert epoch.rate == pytest.approx(schedule.get_last_lr()[0])
        shared = training_minibatches(split.train, side=16, batch_size=8, seed=3, epoch=number, ranks=ALONE)
        plain.train()
        for x, t in load(shared, workers=0, device=CPU):
            optimizer.zero_grad()
            y = plain(x)
            loss = F.cross_entropy(y, t)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            hits += (y.argmax(dim=1) == t).tolist()
        schedule.step()
        plain.eval()
        held_out = validation_minibatches(split.validation, side=16, batch_size=10, ranks=ALONE)
        ((x, t),) = load(held_out, workers=0, device=CPU)
        y = plain(x)
        assert epoch.train_loss == pytest.approx(sum(losses) / 3, rel=1e-5)
        assert epoch.train_accuracy == pytest.approx(sum(hits) / 24)
        assert epoch.validation_loss == pytest.approx(F.cross_entropy(y, t).item(), rel=1e-4)
        assert epoch.validation_accuracy == pytest.approx(float((y.argmax(dim=1) == t).double().mean()))
        assert epoch.images_per_second > 0
    for name, weight in plain.state_dict().items():
        torch.testing.assert_close(trained.state_dict()[name], weight, rtol=1e-4, atol=1e-6)


def test_two_processes_killed_and_started_again_train_as_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    one, two = tmp_path / "one", tmp_path / "two"
    options = [*COMMAND.split(), "--epochs", "3", "--out"]
    assert main([*options, str(one)]) == 0
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m"]
    command = [*launcher, "hessdiag", *options, str(two), "--resume", str(tmp_path / "run")]
    assert kill_after_an_epoch(command, tmp_path / "run.rescalenet-seed0.pt") < 3
    both = subprocess.run(command, env=ONE_THREAD, capture_output=True, text=True, timeout=120)
    assert both.returncode == 0, both.stderr
    assert both.stdout.count("rescalenet") == 1  # printed once
    texts = [(out / "resnet-training/rescalenet-seed0.csv").read_text() for out in (one, two)]
    (head, *mine), (other_head, *theirs) = (list(csv.reader(text.splitlines())) for text in texts)
    assert head == other_head
    assert len(mine) == len(theirs) == 3
    for row, other in zip(mine, theirs, strict=True):
        assert [float(value) for value in other] == pytest.approx([float(value) for value in row], rel=1e-5)
    weights = [torch.load(out / "resnet-training/rescalenet-seed0.pt") for out in (one, two)]
    for name, weight in weights[0].items():
        torch.testing.assert_close(weights[1][name], weight, rtol=1e-4, atol=1e-5)


def test_killed_and_started_again_it_ends_with_the_same_bits(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    options = [*COMMAND.split(), "--epochs", "4", "--out"]
    assert main([*options, str(tmp_path / "undisturbed")]) == 0
    resumed = [*options, str(tmp_path / "resumed"), "--resume", str(tmp_path / "run")]
    done = kill_after_an_epoch([sys.executable, "-m", "hessdiag", *resumed], tmp_path / "run.rescalenet-seed0.pt")
    assert 1 <= done < 4
    trained: list[int] = []

    def noted(*args: Any, epoch: int, **options: Any) -> Minibatches:
        trained.append(epoch)
        return training_minibatches(*args, epoch=epoch, **options)

    monkeypatch.setattr("hessdiag.training.distributed_training.training_minibatches", noted)
    assert main(resumed) == 0
    assert trained == list(range(done, 4))  # what was done is not done again
    first, second = (tmp_path / each / "resnet-training" for each in ("undisturbed", "resumed"))
    assert (second / "rescalenet-seed0.csv").read_text() == (first / "rescalenet-seed0.csv").read_text()
    before, after = (torch.load(each / "rescalenet-seed0.pt") for each in (first, second))
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def kill_after_an_epoch(command: list[str], kept: Path) -> int:
    """Start a training, end it and its processes by SIGKILL in its second epoch or so; the epochs that are kept."""
    with subprocess.Popen(command, env=ONE_THREAD, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        started = time.monotonic()
        while not kept.exists() and process.poll() is None and time.monotonic() - started < 60:
            time.sleep(0.01)
        time.sleep(0.1)  # into the next epoch
        for each in (*psutil.Process(process.pid).children(recursive=True), process):
            each.kill()
    assert process.returncode == -signal.SIGKILL
    return len(torch.load(kept)["epochs"])


def test_dropout_is_part_of_the_training(split: ImageSplit) -> None:
    settings = replace(SETTINGS, epochs=1)
    losses = set()
    for rate in (0.0, 0.5):
        trained = network()
        trained.dropout = nn.Dropout(rate)
        losses.add(train_distributed(trained, split, settings, seed=0, place=Place())[0].train_loss)
    assert len(losses) == 2


def test_a_network_that_diverges_is_given_up(split: ImageSplit) -> None:
    settings = replace(SETTINGS, rate=1e30, epochs=4)
    epochs = train_distributed(network(), split, settings, seed=0, place=Place())
    assert [epoch.number for epoch in epochs] == [1, 2, 3, 4]
    assert all(math.isnan(epoch.validation_loss) for epoch in epochs[1:])
    assert math.isnan(epochs[-1].images_per_second)
    run = TrainingRuns(data="", training="", runs=(TrainingRun(name="it", seed=0, epochs=tuple(epochs)),))
    assert '"validation_loss": null' in run.to_json()
    assert TrainingRuns.from_json(run.to_json()).to_json() == run.to_json()


def test_a_state_of_another_training_or_a_damaged_one_is_refused(split: ImageSplit, tmp_path: Path) -> None:
    path = tmp_path / "state.pt"
    trained = network()
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1, momentum=0.9)
    save_state(path, trained, optimizer, [], {"batch size": "8"})
    assert load_state(path, copy.deepcopy(trained), optimizer, {"batch size": "8"}, ranks=ALONE) == []
    with pytest.raises(HessdiagError, match=r"another training, batch size was 8 and is 16; name another --resume"):
        load_state(path, trained, optimizer, {"batch size": "16"}, ranks=ALONE)
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(HessdiagError, match=r"cannot resume from '.*state.pt' \(.*\): delete it and start again"):
        load_state(path, trained, optimizer, {"batch size": "8"}, ranks=ALONE)
    assert load_state(tmp_path / "none.pt", trained, optimizer, {}, ranks=ALONE) == []


def test_a_batch_that_cannot_be_filled_or_shared_is_refused(split: ImageSplit) -> None:
    with pytest.raises(HessdiagError, match="--batch-size 25: there are only 24 training images, pass less"):
        train_distributed(network(), split, replace(SETTINGS, batch_size=25), seed=0, place=Place())
    with pytest.raises(HessdiagError, match="--batch-size 8: 3 processes share it, pass a multiple of that"):
        train_distributed(network(), split, SETTINGS, seed=0, place=Place("cpu", Ranks(0, 3)))


def test_mixed_precision_is_near(split: ImageSplit) -> None:
    settings = replace(SETTINGS, epochs=1)
    exact, mixed = (
        train_distributed(network(), split, each, seed=0, place=Place())[0].train_loss
        for each in (settings, replace(settings, mixed_precision=True))
    )
    assert mixed != exact
    assert mixed == pytest.approx(exact, rel=0.1)
