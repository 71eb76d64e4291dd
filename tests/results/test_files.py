"""Files are written whole or not at all, and are what their schemas say."""

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import json_schemas
import numpy as np
import pytest
import torch
from jsonschema import Draft202012Validator
from torch import nn

import hessdiag
from hessdiag.errors import HessdiagError
from hessdiag.results.records import Record, make_folder, write_bytes, write_text
from hessdiag.results.report import Heatmap, Report
from hessdiag.results.setups import COLUMNS, Setups, Study
from tests.cli.conftest import run  # noqa: F401, a fixture
from tests.pages import read
from tests.reports import build_block, build_report


def test_text_is_written_as_utf_8_and_replaces_what_was_there(tmp_path: Path) -> None:
    assert write_text(tmp_path / "a.txt", "γ/σ²\n") == tmp_path / "a.txt"
    assert (tmp_path / "a.txt").read_bytes() == "γ/σ²\n".encode()
    (tmp_path / "b.txt").touch()
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "b.txt").stat().st_mode
    (tmp_path / "b.txt").unlink()
    for content in (b"long and old", b"new", b""):
        write_bytes(str(tmp_path / "a.txt"), content)
        assert (tmp_path / "a.txt").read_bytes() == content
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("step", ["pathlib.Path.write_bytes", "os.replace"])
@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_midway_leaves_the_old_file_and_nothing_else(step: str, failure, tmp_path, monkeypatch) -> None:
    (tmp_path / "a").write_text("old")
    monkeypatch.setattr(step, Mock(side_effect=failure))
    wanted = HessdiagError if isinstance(failure, OSError) else type(failure)
    with pytest.raises(wanted) as caught:
        write_text(tmp_path / "a", "new")
    monkeypatch.undo()
    if wanted is HessdiagError:
        assert "No space left on device" in str(caught.value)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_text() == "old"


@pytest.mark.parametrize("path", ["missing/a", "file/a", "folder", "x" * 300])
def test_a_place_that_cannot_be_written_is_refused_in_one_sentence(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "folder").mkdir()
    with pytest.raises(HessdiagError, match="name a file in an existing, writable folder") as caught:
        write_text(tmp_path / path, "text")
    assert path in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert not list((tmp_path / "folder").iterdir())


def test_links_and_pipes_stay_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere" / "real")
    write_text(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "real").read_text() == "text"
    assert sorted(os.listdir(tmp_path)) == ["elsewhere", "link"]
    pipe = tmp_path / "pipe"  # So is /dev/null, which a replacement by a file would break for the whole machine.
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_text(pipe, "text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HessdiagError, match=r"^cannot make the folder '.*file/below' \(Not a directory\)$"):
        make_folder(tmp_path / "file" / "below")
    assert make_folder(tmp_path / "a" / "b").is_dir()


NET = "mlp:6-5-3"
LINES = {
    "report": f"diagnose {NET} --batch-size 4", "comparison": "compare report.json report.json",
    "prediction": f"predict {NET}", "predicted-vs-measured": f"predict {NET} --setups 2",
    "prescription": f"prescribe {NET} --batch-size 4",
    "init-check": f"check-init fan-in --model {NET} --against geometric --setups 2 --batch-size 4",
    "learning-rates": f"lr {NET} --batch-size 4 --steps 2", "sharpness": f"sharpness {NET} --batch-size 4 --density",
    "description": f"describe {NET} --batch-size 4",
}  # fmt: skip


@pytest.fixture(scope="module")
def checks() -> dict[str, Callable[[Any], bool]]:
    found = {}
    for record in json_schemas.RECORDS:
        schema = json.loads(read(json_schemas.path(record)))
        Draft202012Validator.check_schema(schema)
        found[record.schema] = Draft202012Validator(schema).is_valid
    return found


def test_what_every_command_writes_is_valid_and_damage_is_not(run, checks, tmp_path: Path) -> None:  # noqa: F811
    for name, line in LINES.items():
        status, _, err = run(f"{line} -q --json {name}.json")
        assert (status, err) == (0, "")
        written = json.loads((tmp_path / f"{name}.json").read_text(encoding="utf-8"))
        valid = checks[written["schema"]]
        assert written["schema"].startswith(f"hessdiag.{name}/")
        assert valid(written), name
        for key in written:
            assert not valid({k: v for k, v in written.items() if k != key}), (name, key)
            assert not valid(written | {key: {"?": [{}]}}), (name, key)
        assert not valid(written | {"other": 1})
        for parts in (value for value in written.values() if isinstance(value, list) and value):
            if isinstance(parts[0], dict):
                del parts[0][next(iter(parts[0]))]
                assert not valid(written)


def test_undefined_numbers_and_studies_are_valid(checks) -> None:
    model = nn.Sequential(nn.Embedding(7, 4), nn.LayerNorm(4), nn.Flatten(), nn.Linear(8, 3))
    tokens = torch.tensor([[0, 1], [2, 3], [4, 5], [6, 0]])
    setups = hessdiag.measure_setups(NET, setups=1, batch_size=4)
    records: list[Record] = [setups, Study((setups, setups))]
    records += [hessdiag.diagnose(model, tokens, quick=quick, progress=False) for quick in (False, True)]
    for record in records:
        text = record.to_json()
        assert checks[record.schema](json.loads(text)), record.schema
        assert "null" in text
        assert not checks[record.schema](json.loads(text.replace("null", '"nan"')))


SETTINGS = {
    "model": "other", "init": "fan-out", "loss": "random-quadratic", "matrix": "hessian", "per": "batch",
    "method": "probe", "batch_size": 17, "device": "cuda", "dtype": "float32", "data": "random normal",
    "versions": {"hessdiag": "0.0.0"},
}  # fmt: skip


def random_reports(count: int) -> list[Report]:
    rng = np.random.default_rng(0)
    reports = []
    for seed in range(5, 5 + count):
        blocks = [
            build_block(name=name, kind=kind, numel=numel, **dict(zip(COLUMNS, rng.lognormal(size=9), strict=True)))
            for name, kind, numel in (("a.weight", "weight", 4), ("a.bias", "bias", 3), ("b.weight", "weight", 9))
        ]
        side, noise = rng.lognormal(size=(2, 2, 2))
        heatmap = Heatmap(names=("a.weight", "b.weight"), numel=(4, 9), frobenius_sq=side @ side.T, stderr=noise)
        reports.append(build_report(*blocks, heatmap=heatmap, seed=seed))
    return reports


@pytest.fixture
def reports() -> list[Report]:
    return random_reports(7)


def test_columns_map_and_settings_are_those_of_the_reports_and_others_are_refused(reports: list[Report]) -> None:
    setups = Setups.collect(iter(reports))
    for key in COLUMNS:
        expected = [[getattr(report.blocks[place], key) for place in (0, 2)] for report in reports]
        np.testing.assert_array_equal(setups.columns[key], expected)
    maps = np.array([report.heatmap.frobenius_sq for report in reports])
    noise = np.array([report.heatmap.stderr for report in reports])
    np.testing.assert_allclose(setups.frobenius_sq, maps.mean(0))
    np.testing.assert_allclose(setups.frobenius_sq_stderr, maps.std(0, ddof=1) / math.sqrt(7))
    for i, j in np.ndindex(2, 2):
        by_hand = math.sqrt(sum(noise[s, i, j] ** 2 for s in range(7))) / 7
        assert setups.estimator_stderr[i, j] == pytest.approx(by_hand, rel=1e-12)
    mean = np.mean([report.heatmap.normalized() for report in reports], axis=0)
    np.testing.assert_allclose(setups.normalized(), mean)
    low, high = sorted(np.diagonal(mean))
    assert setups.spread == pytest.approx(high / low)
    assert (len(setups), setups.seed, setups.names, setups.numel) == (7, 5, ("a.weight", "b.weight"), (4, 9))
    assert all(getattr(setups, key) == getattr(reports[0], key) for key in SETTINGS)
    with pytest.raises(hessdiag.HessdiagError, match="no trials were measured"):
        Setups.collect([])
    setups = Setups.collect(random_reports(1))
    assert np.isnan(setups.frobenius_sq_stderr).all()
    np.testing.assert_array_equal(setups.estimator_stderr, random_reports(1)[0].heatmap.stderr)
    assert Setups.from_json(setups.to_json()).to_json() == setups.to_json()
    for key, value in SETTINGS.items():
        with pytest.raises(hessdiag.HessdiagError, match=f"differ in {key}: .* collect one experiment at a time"):
            Setups.collect([*reports, replace(reports[0], **{key: value})])
    for change in ({"names": ("a.weight", "c.weight")}, {"numel": (4, 12)}):
        with pytest.raises(hessdiag.HessdiagError, match="different blocks"):
            Setups.collect([*reports, replace(reports[0], heatmap=replace(reports[0].heatmap, **change))])


def test_json_gives_set_ups_and_studies_back_exactly(reports: list[Report], tmp_path: Path) -> None:
    block = replace(reports[3].blocks[0], ratio=math.nan, nu=math.inf, gamma=5e-324)
    reports[3] = replace(reports[3], blocks=(block, *reports[3].blocks[1:]))
    setups = Setups.collect(reports)
    text = setups.to_json(tmp_path / "setups.json")
    for source in (text, tmp_path / "setups.json"):
        again = Setups.from_json(source)
        for key in COLUMNS:
            np.testing.assert_array_equal(again.columns[key], setups.columns[key])
        np.testing.assert_array_equal(again.frobenius_sq, setups.frobenius_sq)
        assert (again, again.to_json()) == (setups, text)
    record = json.loads(text, parse_constant=lambda constant: pytest.fail(f"{constant} is not JSON"))
    assert record["schema"] == "hessdiag.setups/1"
    assert set(record["columns"]) == set(COLUMNS)
    study = Study((setups, replace(setups, init="geometric")))
    study.to_json(tmp_path / "study.json")
    assert Study.from_json(tmp_path / "study.json") == study
    assert Study.from_json(Study(()).to_json()).panels == ()


@pytest.mark.parametrize("kind", [Setups, Study, Report])
def test_one_kind_of_file_is_not_taken_for_another_and_damaged_ones_are_refused(kind, reports: list[Report]) -> None:
    setups = Setups.collect(reports)
    for other in (setups, Study((setups,)), reports[0]):
        if not isinstance(other, kind):
            with pytest.raises(hessdiag.HessdiagError, match="has schema"):
                kind.from_json(other.to_json())
    for rest in ("", ', "names": 3', ', "panels": [3]', ', "panels": [{"names": 3}]'):
        with pytest.raises(hessdiag.HessdiagError, match="damaged") as caught:
            kind.from_json(f'{{"schema": "{kind.schema}"{rest}}}')
        assert str(caught.value).count("damaged") == 1
