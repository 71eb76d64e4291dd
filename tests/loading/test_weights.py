"""Weights from files: the right ones exactly, the wrong ones refused, and no code run."""

import os
import pickle
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hessdiag.errors import HessdiagError
from hessdiag.loading.user_code import NamedFunction, foreign_code, load_function, missing_file
from hessdiag.loading.weights import load_weights
from hessdiag.models import mlp
from tests.unchanged import unchanged

WIDTHS = (4, 3, 2)


def network() -> nn.Module:
    return mlp(WIDTHS)


def load(path: Path) -> tuple[nn.Module, tuple[str, ...]]:
    module = network()
    return module, load_weights(module, str(path))


def write(state: dict, path: Path, *, legacy: bool = False) -> Path:
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path, _use_new_zipfile_serialization=not legacy)
    return path


@pytest.mark.parametrize(("suffix", "dtype"), [("safetensors", None), ("pt", None), ("pt", torch.bfloat16)])
def test_both_formats_load_exactly_and_keep_the_networks_type(tmp_path: Path, suffix: str, dtype) -> None:
    trained = {key: value.to(dtype) for key, value in network().state_dict().items()}
    module, notes = load(write(trained, tmp_path / f"trained.{suffix}"))
    assert notes == ()
    for key, value in module.state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, trained[key].float())


@pytest.mark.parametrize(("wrap", "notes"), [
    (lambda state: {"state_dict": state, "epoch": 3}, ("took what is under 'state_dict'",)),
    (lambda state: {f"module.{k}": v for k, v in state.items()}, ("took what is under 'module'",)),
    (lambda state: {"model": {f"_orig_mod.module.{k}": v for k, v in state.items()}, "optimizer": {"lr": 0.1}},
        ("took what is under 'model._orig_mod.module'",)),
    (lambda state: {"hyper_parameters": {"lr": 0.1},  # as Lightning saves it
            "state_dict": {f"model.{k}": v for k, v in state.items()} | {"criterion.weight": torch.ones(2)}},
        ("took what is under 'state_dict.model'", "left out 1 other tensors (state_dict.criterion.weight)")),
])  # fmt: skip
def test_wrappings_are_taken_off_and_said(tmp_path: Path, wrap, notes: tuple[str, ...]) -> None:
    trained = network().state_dict()
    module, said = load(write(wrap(trained), tmp_path / "last.ckpt", legacy=bool(notes)))
    assert said == notes
    assert all(torch.equal(value, trained[key]) for key, value in module.state_dict().items())


def test_a_prefix_of_the_network_itself_stays_and_a_tied_weight_is_needed_once(tmp_path: Path) -> None:
    wrapped = nn.Module()
    wrapped.module = nn.Linear(2, 2)
    torch.save(wrapped.state_dict(), tmp_path / "own.pt")
    assert load_weights(wrapped, str(tmp_path / "own.pt")) == ()
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    save_file({"0.weight": torch.ones(3, 3)}, tmp_path / "tied.safetensors")
    load_weights(model, str(tmp_path / "tied.safetensors"))
    assert torch.equal(model[1].weight, torch.ones(3, 3))


class Malicious:
    """Unpickling it creates a file."""

    def __init__(self, victim: Path) -> None:
        self.victim = victim

    def __reduce__(self):
        return os.system, (f"touch {self.victim}",)


@pytest.mark.parametrize("form", ["torch", "legacy", "pickle 5"])
def test_a_pickle_that_runs_code_is_refused_and_does_not_run(tmp_path: Path, form: str) -> None:
    victim, path = tmp_path / "victim", tmp_path / "weights.pt"
    content = network().state_dict() | {"extra": Malicious(victim)}
    if form.startswith("pickle"):
        path.write_bytes(pickle.dumps({"extra": Malicious(victim)}, protocol=int(form[-1])))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=form == "torch")
    with pytest.raises(HessdiagError, match=r"could run code|damaged"):
        load(path)
    assert not victim.exists()
    pickle.loads(pickle.dumps(Malicious(victim)))  # it would have worked
    assert victim.exists()


@pytest.mark.parametrize(("changes", "message"), [
    ({"fc1.weight": None, "fc1.bias": None}, "2 missing .fc1.weight, fc1.bias."),
    ({"other": torch.ones(1)}, "1 unexpected .other."),
    ({"fc1.weight": torch.ones(5, 4)}, r"'fc1.weight' is \(5, 4\) torch.float32 in the file and \(3, 4\)"),
    ({"fc1.weight": torch.ones(3, 4, dtype=torch.int8)}, r"'fc1.weight' is \(3, 4\) torch.int8 in the file"),
    ({"fc1.weight": torch.full((3, 4), float("nan"))}, "'fc1.weight' holds NaN or infinite"),
    ({"fc1.weight": torch.ones(3, 4, dtype=torch.complex64)}, "not a dense tensor of real numbers"),
])  # fmt: skip
def test_what_does_not_fit_is_named_and_changes_nothing(tmp_path: Path, changes, message: str) -> None:
    module = network()
    saved = {**module.state_dict(), **changes}
    torch.save({key: value for key, value in saved.items() if value is not None}, tmp_path / "w.pt")
    with unchanged(module), pytest.raises(HessdiagError, match=message):
        load_weights(module, str(tmp_path / "w.pt"))


@pytest.mark.parametrize(("content", "message"), [
    ({"epoch": 1}, "holds no named tensors: save model.state_dict()"),
    (torch.ones(3), "holds no named tensors: save model.state_dict()"),
    (nn.Linear(2, 2), "could run code in it .it would call torch.nn.modules.linear.Linear"),
])  # fmt: skip
def test_other_contents_are_refused(tmp_path: Path, content, message: str) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(HessdiagError, match=message):
        load(tmp_path / "w.pt")


@pytest.mark.parametrize("keep", [0, 0.5, -1])
@pytest.mark.parametrize("suffix", ["safetensors", "pt", "legacy.pt"])
def test_damaged_files_are_refused(tmp_path: Path, suffix: str, keep: float) -> None:
    path = write(network().state_dict(), tmp_path / f"w.{suffix}", legacy=suffix == "legacy.pt")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(HessdiagError, match=r"damaged|could run code"):
        load(path)


SOURCE = """
import sibling
RUNS = []
RUNS.append(1)
NUMBER = 3
def build(width=4):
    print("chatter")
    import late
    return sibling.VALUE + late.VALUE + width
class Holder:
    @staticmethod
    def make(): return 7
def broken(): raise KeyError("no such key")
def leaves(): raise SystemExit(3)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the current one, with a module, a package and modules beside them."""
    (tmp_path / "nets_here.py").write_text(SOURCE)
    (tmp_path / "sibling.py").write_text("VALUE = 10")
    (tmp_path / "late.py").write_text("VALUE = 100")
    (tmp_path / "bad_syntax.py").write_text("def build(:\n")
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\n")
    (tmp_path / "package_here").mkdir()
    (tmp_path / "package_here" / "__init__.py").write_text("")
    (tmp_path / "package_here" / "networks.py").write_text("def build(): return 5\n")
    monkeypatch.chdir(tmp_path)
    for name in ("nets_here", "sibling", "late", "package_here", "package_here.networks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


@pytest.mark.parametrize("reference", ["nets_here:build", "./nets_here.py:build", "nets_here.py:build"])
def test_modules_beside_it_are_found_and_prints_go_to_stderr(folder: Path, reference: str, capsys) -> None:
    path = list(sys.path)
    assert (load_function(reference, what="model")(width=1), sys.path) == (111, path)
    assert capsys.readouterr() == ("", "chatter\n")


def test_files_elsewhere_packages_and_dotted_names_each_run_once_until_it_changes(folder, monkeypatch) -> None:
    assert load_function("package_here.networks:build", what="model")() == 5
    assert load_function("nets_here:Holder.make", what="model")() == 7
    monkeypatch.chdir("/")
    assert load_function(f"{folder}/nets_here.py:build", what="model")() == 114
    monkeypatch.chdir(folder)
    first, second = (load_function("./nets_here.py:build", what=what).function for what in ("model", "--init"))
    assert first is second
    (folder / "nets_here.py").write_text("def build(): return 'new'\n")
    assert load_function("./nets_here.py:build", what="model")() == "new"
    for _ in range(2):
        with pytest.raises(HessdiagError, match="SyntaxError"):
            load_function("./bad_syntax.py:build", what="model")
    assert not [name for name in sys.modules if name.startswith("bad_syntax")]


@pytest.mark.parametrize(("reference", "message"), [
    ("nets_here", "name a function, as in package.module:function"),
    ("nets_her:build", "raised ModuleNotFoundError: No module named 'nets_her'"),
    ("package_here.network:build", "No module named 'package_here.network'"),
    ("nets_here:biuld", "no 'biuld' in nets_here; did you mean build?"),
    ("./nets_here.py:zzz", "no 'zzz' in ./nets_here.py$"),
    ("./net_here.py:build", "no file 'net_here.py'; did you mean nets_here.py?"),
    ("./absent/net.py:build", "no file 'absent/net.py'$"), ("./bad_syntax.py:build", "raised SyntaxError: .* line 1"),
    ("needs_more:build", "raised ModuleNotFoundError: No module named 'not_installed_anywhere' .needs_more.py, line 1"),
    ("nets_here:NUMBER", "NUMBER is a int, name a function or a class"),
    ("not a module:build", "No module named 'not a module'"),
])  # fmt: skip
def test_what_cannot_be_found_is_named_with_the_nearest(folder: Path, reference: str, message: str) -> None:
    with pytest.raises(HessdiagError, match=message):
        load_function(reference, what="model")


def test_what_a_function_raises_is_one_line(folder: Path) -> None:
    told = {"broken": "raised KeyError: 'no such key' .nets_here.py, line 13", "leaves": "raised SystemExit: 3.*`main`"}
    for name, message in told.items():
        with pytest.raises(HessdiagError, match=f"--data 'nets_here:{name}' {message}"):
            load_function(f"nets_here:{name}", what="--data")()


@pytest.mark.parametrize(("arguments", "message"), [
    ({"path": 1, "sizes": 3}, r"'m:f'\(path, \*, size=1\): got an unexpected keyword argument 'sizes'"),
    ({"size": 2}, r"missing a required argument: 'path': pass arguments=\{'NAME': VALUE\} \(--arg NAME=VALUE\)"),
])  # fmt: skip
def test_arguments_are_checked_before_the_call(arguments: dict[str, int], message: str) -> None:
    def function(path, *, size=1):
        raise AssertionError

    with pytest.raises(HessdiagError, match=message):
        NamedFunction("model", "m:f", function).check_arguments(arguments)


def test_errors_pass_through_and_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    for error in (HessdiagError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)), foreign_code("model"):
            raise error
    assert missing_file(tmp_path / "a.pt") == f"there is no file '{tmp_path}/a.pt'"
    (tmp_path / "best.pt").touch()
    assert missing_file(tmp_path / "bets.pt").endswith("did you mean best.pt?")
