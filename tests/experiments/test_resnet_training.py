"""The part of the command that trains residual networks: its options, and what it writes."""

from pathlib import Path

import pytest
import torch

from hessdiag.__main__ import main
from hessdiag.experiments import resnet_training
from hessdiag.experiments.resnet_training import FIGURE, NETWORKS, build, read_options
from hessdiag.results.training_runs import Epoch, TrainingRun, TrainingRuns
from tests.training.images import write_images

PART = ["reproduce", "resnet", "--part", "training"]


def test_the_paper_is_the_default() -> None:
    settings = read_options(data_dir="images", workers=3)
    assert (settings.networks, settings.depth, settings.seeds) == (
        ("preconditioned", "rescalenet", "batch-norm"),
        50,
        5,
    )
    training = settings.training
    assert (training.epochs, training.batch_size, training.rate, training.weight_decay) == (90, 256, 0.1, 1e-4)
    assert (training.side, training.mixed_precision, settings.workers) == (224, False, 3)
    assert [training.rate_of(epoch) for epoch in (29, 30, 59, 60)] == pytest.approx([0.1, 0.01, 0.01, 0.001])
    assert FIGURE.steps(quick=False, data_dir="images") == 3 * 5 * 90


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_follow_from_their_seed(name: str) -> None:
    settings = read_options(quick=True, data_dir="images")
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one, again, other = (build(name, 3, settings, seed=seed).state_dict() for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one[key], again[key]) for key in one)
    assert not torch.equal(one["fc.weight"], other["fc.weight"])
    assert one["fc.weight"].shape == (3, 512)


def test_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resnet_training.os, "cpu_count", lambda: 12)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert read_options(data_dir="images").workers == 8
    assert read_options(data_dir="images", quick=True).workers == 0
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert read_options(data_dir="images").workers == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "--part training reads images: pass --data-dir with a folder that has train/CLASS/*.jpg and val/"),
        ("--data-dir nowhere", "cannot list 'nowhere/train' (No such file or directory): name a folder with train/"),
        ("--data-dir nowhere --networks rescalnet", "--networks 'rescalnet': did you mean rescalenet?"),
        ("--data-dir nowhere --optimizer adam", "--optimizer is an option of libsvm: leave it out for resnet"),
    ],
)
def test_what_cannot_be_trained_is_refused(options: str, said: str, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*PART, *options.split()]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"hessdiag: {said}")
    assert printed.count("\n") == 1


def test_the_other_part_has_no_such_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", "resnet", "--networks", "rescalenet"]) == 2
    said = "--networks is an option of resnet --part training: leave it out for resnet"
    assert capsys.readouterr().err == f"hessdiag: {said}\n"


def test_a_process_says_itself_which_image_it_could_not_read(tmp_path: Path, monkeypatch, capsys) -> None:
    """Also one that is not the first, which knows nothing of it."""
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "images", train=2, val=1)
    (tmp_path / "images" / "train" / "dark" / "1.jpg").write_bytes(b"damaged")
    monkeypatch.setenv("RANK", "1")
    assert main([*PART, "--quick", "--data-dir", "images", "--batch-size", "4"]) == 2
    assert capsys.readouterr().err.startswith("hessdiag: cannot read the image 'images/train/dark/1.jpg' (")


def test_a_saved_training_is_read_drawn_and_summed_up(tmp_path: Path) -> None:
    def run(name: str, seed: int, accuracy: float) -> TrainingRun:
        last = Epoch(
            number=2,
            rate=0.1,
            train_loss=0.5,
            train_accuracy=0.8,
            validation_loss=0.75,
            validation_accuracy=accuracy,
            images_per_second=90.0,
        )
        return TrainingRun(name=name, seed=seed, epochs=(last.__class__(number=1, rate=0.1), last))

    runs = (run("rescalenet", 0, 0.7), run("rescalenet", 1, 0.72), run("preconditioned", 0, 0.8))
    measured = TrainingRuns(data="8 images", training="depth 14", runs=runs)
    paths = FIGURE.save(measured, tmp_path)
    assert [path.name for path in paths] == ["resnet-training.json", "resnet-training.png", "resnet-training.svg"]
    lines = FIGURE.summary(FIGURE.read(paths[0]))
    assert lines[0] == "depth 14; on 8 images"
    assert [line.split() for line in lines[3:]] == [
        ["preconditioned", "1", "80.00", "%", "0.750", "0.500", "90.0"],
        ["rescalenet", "2", "71.00", "%", "1.00", "0.750", "0.500", "90.0"],
    ]
