"""hessdiag prescribe: one page that says what to change before training."""

import json

import pytest

import hessdiag
from hessdiag import Recipe
from hessdiag.loading.model_spec import resolve_model
from hessdiag.loading.prepare import prepare


def test_the_page_has_numbers_before_and_after_and_code_that_makes_the_spread_fall(run):
    status, out, err = run("prescribe mlp:20-30-40-5 --batch-size 16")
    assert (status, err) == (0, "")
    assert out.startswith("mlp:20-30-40-5, init as built: what to change before training with SGD; nothing was changed")
    assert "σ² now  σ² then  rms now  rms then  weight ×  reads ×  or lr ×" in out
    prepared = prepare(resolve_model("mlp:20-30-40-5"), batch_size=16)
    model, batches = prepared.module, list(prepared.batches())
    before = hessdiag.diagnose(model, batches).spread["avg_sq_singular_value"]
    code = out.partition("as code:\n")[2]
    exec(code, {"model": model})
    assert before > 2
    assert hessdiag.diagnose(model, batches).spread["avg_sq_singular_value"] < 1.01


def test_json_on_stdout_and_in_a_file(run, tmp_path):
    status, out, _ = run("prescribe mlp:20-30-5 --optimizer adam --balance gamma --batch-size 8 --json -")
    record = json.loads(out)
    assert status == 0
    assert (record["schema"], record["optimizer"], record["balance"]) == ("hessdiag.recipe/1", "adam", "gamma")
    assert record["spread"]["gamma"] == pytest.approx(1, abs=1e-4)
    assert record["blocks"][0]["rate_factor"] == pytest.approx(1 / record["blocks"][0]["weight_factor"])
    status, page, err = run("prescribe mlp:20-30-5 --batch-size 8 --json recipe.json")
    assert err == "wrote recipe.json\n"
    assert repr(Recipe.from_json(tmp_path / "recipe.json")) + "\n" == page


def test_a_network_in_balance_is_told_so(run):
    status, out, _ = run("prescribe mlp:20-30-5 --batch-size 8 --target 1e6")
    assert status == 0
    assert "no weight needs another scale" in out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("prescribe mlp:20-30-5 --optimizer lion", "--optimizer 'lion' is not known: use one of sgd, adam"),
        ("prescribe mlp:20-30-5 --balance nu", "--balance 'nu' is not known: use one of sigma, gamma, rate"),
        ("prescribe mlp:20-30-5 --target 0.1", "--target 0.1: pass a spread of at least 1"),
        ("prescribe mlp:20-30-5 --rounds 0", "--rounds 0: pass at least 1"),
        ("prescribe mlp:20-30-5 --json missing/recipe.json", "there is no folder 'missing'"),
    ],
)
def test_refusals(run, line, message):
    status, out, err = run(line)
    assert (status, out) == (2, "")
    assert message in err
