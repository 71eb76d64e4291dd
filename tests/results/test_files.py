"""Files are written whole or not at all, and are what their schemas say."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import json_schemas
import pytest
import torch
from jsonschema import Draft202012Validator
from torch import nn

import hessdiag
from hessdiag.errors import HessdiagError
from hessdiag.results.records import Record, make_folder, write_bytes, write_text
from hessdiag.results.setups import Study
from tests.cli.conftest import run  # noqa: F401, a fixture
from tests.pages import ROOT


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
def test_a_failure_midway_leaves_the_old_file_and_nothing_else(
    step: str, failure: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("old")

    def fail(*args: object, **options: object) -> None:
        raise failure

    monkeypatch.setattr(step, fail)
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
    # So is /dev/null, which a replacement by a file would break for the whole machine.
    pipe = tmp_path / "pipe"
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
    "report": f"diagnose {NET} --batch-size 4",
    "comparison": "compare report.json report.json",
    "prediction": f"predict {NET}",
    "predicted-vs-measured": f"predict {NET} --setups 2",
    "prescription": f"prescribe {NET} --batch-size 4",
    "init-check": f"check-init fan-in --model {NET} --against geometric --setups 2 --batch-size 4",
    "learning-rates": f"lr {NET} --batch-size 4 --steps 2",
    "sharpness": f"sharpness {NET} --batch-size 4 --density",
    "description": f"describe {NET} --batch-size 4",
}


@pytest.fixture(scope="module")
def checks() -> dict[str, Callable[[Any], bool]]:
    found = {}
    for record in json_schemas.RECORDS:
        schema = json.loads((ROOT / json_schemas.path(record)).read_text(encoding="utf-8"))
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
