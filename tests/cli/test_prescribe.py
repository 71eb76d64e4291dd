"""hessdiag prescribe: one page of scales, with σ² before and after."""

import json

import pytest

import hessdiag
from hessdiag.loading.prepare import prepare
from hessdiag.models.sources import resolve_model


def test_the_page_has_numbers_before_and_after_and_code_that_makes_the_spread_fall(run):
    status, out, err = run("prescribe mlp:20-30-40-5 --batch-size 16")
    assert (status, err) == (0, "")
    said = "mlp:20-30-40-5, init as built: scales that make σ² of its weights equal; nothing was changed"
    assert out.startswith(said)
    assert "σ² before  σ² after  weight ×  input ×  or SGD lr ×" in out
    prepared = prepare(resolve_model("mlp:20-30-40-5"), batch_size=16)
    model, batches = prepared.module, list(prepared.batches())
    before = hessdiag.diagnose(model, batches).spread["avg_sq_singular_value"]
    code = out.partition("as code:\n")[2]
    assert run("prescribe mlp:20-30-40-5 --batch-size 16 -q")[1] == code
    exec(code, {"model": model})
    assert before > 2
    assert hessdiag.diagnose(model, batches).spread["avg_sq_singular_value"] < 1.01


def test_json_on_stdout_and_in_a_file(run, tmp_path):
    status, out, _ = run("prescribe mlp:20-30-5 --batch-size 8 --json -")
    record = json.loads(out)
    assert (status, record["schema"]) == (0, "hessdiag.prescription/3")
    assert record["spread"]["avg_sq_singular_value"] == pytest.approx(1, abs=1e-4)
    status, page, err = run("prescribe mlp:20-30-5 --batch-size 8 --json found.json")
    assert (status, err) == (0, "wrote found.json\n")
    assert repr(hessdiag.Prescription.from_json(tmp_path / "found.json")) + "\n" == page
