"""What commands write is valid by the schemas of docs/schemas/, and damaged files are not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import json_schemas
import pytest
import torch
from jsonschema import Draft202012Validator
from torch import nn

import hessdiag
from hessdiag.results.records import Record
from hessdiag.results.setups import Study
from tests.cli.conftest import run  # noqa: F401, a fixture
from tests.pages import ROOT

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
