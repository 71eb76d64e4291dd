"""The experiment on two real, tiny data sets: what is trained, killed and resumed, shared, and asked for wrongly."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hessdiag.__main__ import main
from hessdiag.datasets.libsvm import load_libsvm
from hessdiag.execution.work import Work
from hessdiag.experiments import libsvm_figure
from hessdiag.experiments.libsvm_balance import measure_balance
from hessdiag.experiments.libsvm_grid import as_array, make_network, powers_beyond, run_grid, to_examples
from hessdiag.experiments.libsvm_settings import Choice, read_options
from hessdiag.results.training_study import TrainingStudy
from hessdiag.training.stacked import Member, Training, train_stacked
from tests.experiments.libsvm_files import write_files

FAST = ["reproduce", "libsvm", "--quick", "--epochs", "1", "--schemes", "fan-in,geometric"]
RUN = [*FAST, "--data-dir", "data", "--datasets", "iris,wine"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "data").mkdir()
    write_files(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "hessdiag", *RUN, *words]


def environment() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def test_killed_in_the_middle_of_the_grid_and_resumed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--out", "undisturbed"]) == 0
    expected = capsys.readouterr().out
    process = subprocess.Popen(command("--out", "killed", "--resume", "run"), env=environment())
    began = time.monotonic()
    while not ((folder / "run").exists() and (folder / "run").stat().st_size > 25_000) and process.poll() is None:
        assert time.monotonic() - began < 60
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -9
    with sqlite3.connect(folder / "run") as kept:
        ((done,),) = kept.execute("SELECT count(*) FROM unit")
    assert 0 < done < libsvm_figure.steps(quick=True, datasets="iris,wine", schemes="fan-in,geometric")
    resumed = subprocess.run(command("--out", "resumed", "--resume", "run"), env=environment(), capture_output=True)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.decode() == expected
    assert (folder / "resumed/libsvm.json").read_bytes() == (folder / "undisturbed/libsvm.json").read_bytes()


def test_two_processes_find_what_one_does(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, "--out", "one"]) == 0
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    both = subprocess.run(
        [sys.executable, *launcher, *command("--out", "two", "--resume", "run")[1:]],
        env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert both.returncode == 0, both.stderr
    assert both.stdout == capsys.readouterr().out
    assert (folder / "two/libsvm.json").read_bytes() == (folder / "one/libsvm.json").read_bytes()


def test_a_finished_run_is_not_trained_again_and_may_be_extended(folder: Path, monkeypatch, capsys) -> None:
    options = [*FAST, "--data-dir", "data", "--resume", "run", "--out", "out", "--datasets"]
    assert main([*options, "iris"]) == 0
    names: list[str] = []
    monkeypatch.setattr(
        "hessdiag.experiments.libsvm_grid.train_stacked",
        lambda members, examples, settings: names.append("wine") or train_stacked(members, examples, settings),
    )
    assert main([*options, "iris"]) == 0
    assert names == []
    assert main([*options, "iris,wine"]) == 0
    assert names
    study = TrainingStudy.from_json("out/libsvm.json")
    assert [block.name for block in study.blocks] == ["iris", "wine"]


def test_the_grid_holds_the_losses_of_the_networks(folder: Path) -> None:
    settings = read_options(quick=True, data_dir="data", epochs=1, schemes="fan-in,fan-out")
    dataset = load_libsvm("iris", data_dir=folder / "data")
    powers, losses = as_array(run_grid(dataset, settings, seed=0, device="cpu", work=Work()))
    assert losses.shape == (2, len(powers), 3)
    assert set(settings.powers) <= set(powers)
    medians = np.median(losses, axis=-1)
    for row in medians:  # no optimum is on an edge of what was run
        run = np.flatnonzero(~np.isnan(row))
        assert run[0] < np.nanargmin(row) < run[-1]
    member = Member(make_network(dataset, "fan-out", 1), 2.0**-3, 1)
    alone = train_stacked([member], to_examples(dataset, "cpu"), settings.training)
    assert losses[1, powers.index(-3), 1] == pytest.approx(float(alone), rel=1e-5)


def test_grids_are_widened_where_the_optimum_is_on_an_edge() -> None:
    def grid(*rows: list[float]) -> dict[int, np.ndarray]:
        return {1 - place: np.array(column)[:, None] for place, column in enumerate(zip(*rows, strict=True))}

    losses = grid([1, 2, 3], [3, 2, 1], [2, 1, 2], [np.inf, np.nan, 1])
    found = powers_beyond(losses, ["above", "below", "inside", "short"])
    assert found == {"above": (2, 3), "below": (-2, -3), "inside": (), "short": (-2, -3)}
    assert powers_beyond({11: np.ones((1, 1)), 10: np.full((1, 1), 2.0)}, ["most"]) == {"most": ()}


def test_rows_are_normalised_and_sparse_ones_give_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = load_libsvm("wine", data_dir=folder / "data")
    dense = to_examples(dataset, "cpu").rows(torch.arange(20))
    assert dense.mean(1).abs().max() < 1e-5
    torch.testing.assert_close(dense.var(1, unbiased=False), torch.ones(20), rtol=1e-3, atol=0)
    monkeypatch.setattr("hessdiag.experiments.libsvm_grid.MAX_DENSE_BYTES", 0)
    assert torch.equal(to_examples(dataset, "cpu").rows(torch.arange(20)), dense)


def test_balance_is_measured_as_training_begins(folder: Path) -> None:
    settings = read_options(quick=True, data_dir="data", schemes="fan-in,geometric")
    dataset = load_libsvm("iris", data_dir=folder / "data")
    found = measure_balance(dataset, settings, seed=0, device="cpu", work=Work())
    assert found.sigma_spread.shape == found.gamma_spread.shape == found.predicted_rate.shape == (2, 3)
    assert (found.sigma_spread[1] < 10).all()
    assert (found.sigma_spread[0] > 100).all()
    assert (found.predicted_rate > 0).all()
    adam = replace(settings, training=Training(optimizer="adam"))
    other = measure_balance(dataset, adam, seed=0, device="cpu", work=Work())
    assert (other.predicted_rate < found.predicted_rate / 10).all()  # along the sign of the gradient
    assert np.array_equal(other.sigma_spread, found.sigma_spread)


def test_the_budget_leaves_sets_out_and_says_so(folder: Path, monkeypatch, capsys) -> None:
    clock = iter([0.0, 1.0, 100.0])
    monkeypatch.setattr(libsvm_figure.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(libsvm_figure, "measure_dataset", lambda *_, **__: "block")
    study = libsvm_figure.measure(quick=True, work=Work(), data_dir="data", datasets="iris,wine", budget=1.0)
    assert (study.blocks, study.left_out) == (("block",), ("wine",))
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    assert main([*RUN, "--budget", "0"]) == 2
    assert capsys.readouterr().err == "hessdiag: --budget 0: no data set was begun in time, pass more minutes\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("libsvm --datasets irsi", "unknown data set 'irsi': did you mean iris?"),
        ("libsvm --datasets iris,iris", "--datasets 'iris,iris': name each data set once"),
        ("libsvm --datasets iris:0", "--datasets 'iris:0': write rows, or rows x features, as in news20:2000x500"),
        ("libsvm --datasets iris:many", "--datasets 'iris:many': write rows, or"),
        ("libsvm --optimizer adma", "--optimizer 'adma': did you mean adam?"),
        ("libsvm --schemes fan-in", "--schemes 'fan-in': name at least two initialisations, each once"),
        ("libsvm --schemes fan-in,geo", "--schemes 'fan-in,geo': unknown initialisation 'geo'"),
        ("libsvm --data-dir nowhere", "--data-dir 'nowhere': there is no such folder"),
        ("libsvm --data-dir data --datasets glass", "--data-dir 'data' has no glass: it should hold glass.scale.bz2"),
        (
            "ratios --epochs 2",
            "--epochs is an option of resnet --part cifar, resnet --part training, libsvm, alexnet: leave it",
        ),
        ("ratios --schemes fan-in", "--schemes is an option of libsvm: leave it out for ratios"),
    ],
)
def test_what_is_asked_for_wrongly_is_one_line(words: str, said: str, folder: Path, capsys) -> None:
    assert main(["reproduce", *words.split()]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"hessdiag: {said}")
    assert err.count("\n") == 1


def test_parts_of_data_sets_are_taken_and_noted(folder: Path) -> None:
    settings = read_options(data_dir="data", datasets="wine:50x7,iris")
    assert settings.datasets == (Choice("wine", 50, 7), Choice("iris"))
    wine = libsvm_figure.load(settings.datasets[0], settings)
    assert (len(wine), wine.features) == (50, 7)
    assert wine.note == "the 7 most frequent of 13 features; 50 of 178 rows"


def test_without_names_the_smaller_sets_are_chosen_from_the_smallest() -> None:
    names = [choice.name for choice in read_options().datasets]
    assert names[:2] == ["iris", "glass"]
    assert "usps" in names
    assert "mnist" not in names
    assert len(read_options(datasets="all").datasets) == 25
