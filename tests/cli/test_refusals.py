"""Whatever is wrong with the input: exit status 2, one line on stderr, nothing on stdout, nothing half-written."""

import errno
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from hessdiag.__main__ import main
from hessdiag.models import mlp

NETS = """
import warnings
import torch
from torch import nn
NUMBER = 3
warnings.warn("from the module")
def good(): return nn.Linear(4, 2), 4
def silent(): return nn.Linear(4, 2)
def raises(): raise ValueError("first line\\nsecond line")
def leaves(): raise SystemExit(1)
def nothing(): return None
def needs(width): return nn.Linear(4, width), 4
def bad_size(): return nn.Linear(4, 2), "four"
def lazy(): return nn.LazyLinear(2), 4
def two_outputs():
    class Two(nn.Module):
        def forward(self, x): return x, x
    return Two(), 4
class Positions(nn.Module):
    def __init__(self): super().__init__(); self.layer, self.input_size = nn.Linear(4, 12), 4
    def forward(self, x): return self.layer(x).view(-1, 3, 4)
class Named(Positions):
    def forward(self, x): return {"first": self.layer(x), "second": super().forward(x)}
def no_parameters(): return nn.ReLU(), 4
def fails_forward():
    class Fails(nn.Linear):
        def forward(self, x): raise RuntimeError("forward\\n\\n failed")
    return Fails(4, 2), 4
def nan_weights():
    module = nn.Linear(4, 2)
    nn.init.constant_(module.weight, float("nan"))
    return module, 4
def complex_outputs():
    class Complex(nn.Linear):
        def forward(self, x): return super().forward(x).to(torch.complex64)
    return Complex(4, 2), 4

def init_raises(weight): raise RuntimeError("no")
def init_nan(weight): weight.fill_(float("nan"))
def init_shape(weight): return torch.ones(1)

def data(): return torch.ones(3, 4), torch.tensor([0, 1, 0])
def data_none(): return None
def data_empty(): return torch.ones(0, 4)
def data_no_batches(): return []
def data_nan(): return torch.full((3, 4), float("nan"))
def data_wide(): return torch.ones(3, 5)
def data_integers(): return torch.ones(3, 4, dtype=torch.long)
def data_uneven(): return torch.ones(3, 4), torch.zeros(2)
def data_no_targets(): return torch.ones(3, 4)
def data_class(): return torch.ones(3, 4), torch.tensor([0, 1, 2])
def data_shape(): return torch.ones(3, 4), torch.zeros(3, 2, dtype=torch.long)
def data_raises(): raise FileNotFoundError("train.csv")
def data_keywords(): return {"images": torch.ones(3, 4)}
def data_numpy(): return torch.ones(3, 4).numpy()
def data_huge(): return torch.full((3, 4), 1e300, dtype=torch.float64)
def data_generator():
    yield torch.ones(3, 4).numpy()
"""


class Malicious:
    """Unpickling it creates the file `victim`."""

    def __reduce__(self):
        return os.system, ("touch victim",)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Everything that the commands below name, in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "nets_bad", raising=False)
    for library in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, library, None)
    Path("nets_bad.py").write_text(NETS)
    Path("syntax.py").write_text("def (:\n")
    Path("imports.py").write_text("import not_installed_anywhere\n")
    Path("folder").mkdir()
    Path("config.json").write_text(json.dumps({"model_type": "brt"}))
    Path("broken.json").write_text("{")
    state = mlp([4, 3, 2]).state_dict()
    torch.save(state, "good.pt")
    save_file(state, "good.safetensors")
    Path("empty.pt").touch()
    Path("text.pt").write_text("hello")
    for name in ("good.pt", "good.safetensors"):
        content = Path(name).read_bytes()
        Path(f"truncated.{name[5:]}").write_bytes(content[: len(content) // 2])
        Path(f"noise.{name[5:]}").write_bytes(bytes(255 - byte for byte in content))
    torch.save({"state_dict": state, "more": Malicious()}, "malicious.pt")
    Path("malicious.pkl").write_bytes(pickle.dumps(Malicious()))
    torch.save(nn.Linear(2, 2), "module.pt")
    torch.save(torch.ones(3), "tensor.pt")
    torch.save(mlp([5, 3, 2]).state_dict(), "shapes.pt")
    torch.save({key: value for key, value in state.items() if "fc1" in key}, "part.pt")
    torch.save({key: value * float("nan") for key, value in state.items()}, "nan.pt")
    torch.save({key: value.to(torch.int8) for key, value in state.items()}, "int8.pt")
    return tmp_path


GOOD = ("./nets_bad.py:good",)
WEIGHTS = ("mlp:4-3-2", "--weights")
REFUSED: list[tuple[tuple[str, ...], str]] = [
    # MODEL
    (("lenett",), "did you mean lenet"),
    (("",), "unknown model ''"),
    (("mlp",), "write the widths"),
    (("mlp:",), "write the widths"),
    (("mlp:4-0-2",), "write the widths"),
    (("mlp:4--2",), "write the widths"),
    (("mlp:4-" + "9" * 5000,), "write the widths"),
    (("mlp:900000000-900000000-2",), "raised"),
    (("hf:",), "name a configuration file"),
    (("hf:missing.json",), "there is no file 'missing.json'"),
    (("hf:broken.json",), "not a readable JSON file"),
    (("hf:config.json",), "no model type 'brt'"),
    (("timm:resnet18",), "pip install timm"),
    (("torchvision:resnet18",), "pip install torchvision"),
    (("nets_bda:good",), "did you mean nets_bad"),
    (("nets_bad:godo",), "did you mean good?"),
    (("nets_bad.py",), "as in nets_bad.py:build"),
    (("./nets_bda.py:good",), "did you mean nets_bad.py?"),
    (("./folder/none.py:good",), "there is no file 'folder/none.py'"),
    (("./absent/none.py:good",), "there is no folder 'absent'"),
    (("./nets_bad.py:",), "name a function"),
    (("./nets_bad.py:NUMBER",), "NUMBER is a int"),
    (("./syntax.py:build",), "raised SyntaxError"),
    (("imports:build",), "No module named 'not_installed_anywhere'"),
    (("./nets_bad.py:raises",), "raised ValueError: first line (nets_bad.py, line"),
    (("./nets_bad.py:leaves",), "raised SystemExit: 1"),
    (("./nets_bad.py:nothing",), "returned a NoneType"),
    (("./nets_bad.py:bad_size",), "returned the input size 'four'"),
    (("./nets_bad.py:lazy",), "lazy parameter"),
    (("./nets_bad.py:silent",), "(--input-size 3,32,32)"),
    (("./nets_bad.py:two_outputs",), "returned a tuple"),
    (("./nets_bad.py:no_parameters",), "has no parameters"),
    (("./nets_bad.py:fails_forward",), "RuntimeError: forward"),
    (("./nets_bad.py:nan_weights",), "'weight' holds NaN"),
    (("./nets_bad.py:complex_outputs",), "real floating-point"),
    # --arg
    (("./nets_bad.py:needs",), "(--arg width=VALUE)"),
    (("./nets_bad.py:needs", "--arg", "widht=2"), "did you mean width?"),
    (("./nets_bad.py:needs", "--arg", "width=two"), "raised TypeError"),
    (("./nets_bad.py:needs", "--arg", "width"), "write a name and a value"),
    (("./nets_bad.py:needs", "--arg", "=2"), "write a name and a value"),
    (("./nets_bad.py:needs", "--arg", "my width=2"), "write a name and a value"),
    (("./nets_bad.py:needs", "--arg", "width=2", "--arg", "width=3"), "given twice"),
    (("./nets_bad.py:needs", "--arg", "width=" + "(" * 2000), "raised TypeError"),
    # sizes and types
    ((*GOOD, "--input-size", "5"), "cannot read inputs of shape 64×5"),
    ((*GOOD, "--input-size", "0"), "write positive sizes"),
    ((*GOOD, "--input-size", "4,,4"), "write positive sizes"),
    ((*GOOD, "--input-size", "9" * 5000), "write positive sizes"),
    ((*GOOD, "--input-size", "99999999,99999999,99999999"), "cannot draw 64 inputs"),
    ((*GOOD, "--batch-size", "0"), "at least 1 example"),
    ((*GOOD, "--batch-size", "-3"), "at least 1 example"),
    ((*GOOD, "--batch-size", "many"), "valid integer"),
    ((*GOOD, "--batch-size", "9000000000000000"), "cannot draw"),
    ((*GOOD, "--dtype", "float16"), "'float16' is not one of"),
    ((*GOOD, "--device", "tpu"), "'tpu' is not one of"),
    ((*GOOD, "--seed", "-1"), "--seed"),
    ((*GOOD, "--loss", "hinge"), "unknown loss 'hinge'"),
    ((*GOOD, "--method", "guess"), "method"),
    # --init
    ((*GOOD, "--init", "geometri"), "did you mean geometric"),
    ((*GOOD, "--init", "torch.nn.init:ortogonal_"), "did you mean orthogonal_"),
    ((*GOOD, "--init", "./nets_bad.py:init_raises"), "raised RuntimeError: no"),
    ((*GOOD, "--init", "./nets_bad.py:init_nan"), "left NaN"),
    ((*GOOD, "--init", "./nets_bad.py:init_shape"), "returned shape (1,)"),
    ((*GOOD, "--init", "fan-in", "--weights", "good.pt"), "pass one of them"),
    # --weights
    ((*WEIGHTS, "godo.pt"), "did you mean good.pt"),
    ((*WEIGHTS, "folder"), "is a folder"),
    ((*WEIGHTS, "empty.pt"), "damaged"),
    ((*WEIGHTS, "text.pt"), "damaged"),
    ((*WEIGHTS, "truncated.pt"), "damaged"),
    ((*WEIGHTS, "truncated.safetensors"), "damaged"),
    ((*WEIGHTS, "noise.pt"), "could run code"),
    ((*WEIGHTS, "noise.safetensors"), "damaged"),
    ((*WEIGHTS, "malicious.pt"), "could run code in it (it would call posix.system)"),
    ((*WEIGHTS, "malicious.pkl"), "could run code"),
    ((*WEIGHTS, "module.pt"), "could run code"),
    ((*WEIGHTS, "tensor.pt"), "holds a Tensor"),
    ((*WEIGHTS, "shapes.pt"), "1 of another shape (fc1.weight is 3×5 in the file and 3×4 in the network)"),
    ((*WEIGHTS, "part.pt"), "2 missing (fc2.weight, fc2.bias)"),
    ((*WEIGHTS, "nan.pt"), "holds NaN"),
    ((*WEIGHTS, "int8.pt"), "holds int8"),
    (
        ("lenet", "--weights", "good.pt"),
        "3 missing (conv1.weight, conv2.weight, fc3.weight), 2 unexpected (fc1.bias",
    ),
    # --data
    ((*GOOD, "--data", "nets_bad"), "name a function"),
    ((*GOOD, "--data", "./nets_bad.py:dta"), "did you mean data"),
    ((*GOOD, "--data", "./nets_bad.py:data_none"), "returned a NoneType"),
    ((*GOOD, "--data", "./nets_bad.py:data_empty"), "the batch is empty"),
    ((*GOOD, "--data", "./nets_bad.py:data_no_batches"), "gives no batch"),
    ((*GOOD, "--data", "./nets_bad.py:data_nan"), "NaN or infinite"),
    ((*GOOD, "--data", "./nets_bad.py:data_huge"), "NaN or infinite"),
    ((*GOOD, "--data", "./nets_bad.py:data_wide"), "cannot read inputs of shape 3×5"),
    (
        (*GOOD, "--data", "./nets_bad.py:data_integers"),
        "inputs are int64 and the model reads float32",
    ),
    ((*GOOD, "--data", "./nets_bad.py:data_uneven"), "first dimension must be the same batch"),
    ((*GOOD, "--data", "./nets_bad.py:data_no_targets", "--loss", "cross-entropy"), "needs targets"),
    ((*GOOD, "--data", "./nets_bad.py:data_class", "--loss", "cross-entropy"), "targets hold class 2"),
    ((*GOOD, "--data", "./nets_bad.py:data_shape", "--loss", "cross-entropy"), "expected class indices"),
    (("./nets_bad.py:Positions", "--loss", "cross-entropy"), "outputs (batch, 3, 4) may hold the classes"),
    (("./nets_bad.py:Positions", "--loss", "cross-entropy", "--class-dim", "3"), "class_dim 3: the outputs are"),
    ((*GOOD, "--class-dim", "1"), "it is for loss 'cross-entropy' alone"),
    (("./nets_bad.py:Named",), "name one, as in output='first' (--output first)"),
    (("./nets_bad.py:Named", "--output", "third"), "output 'third': the model returned a dict of first, second"),
    ((*GOOD, "--output", "0"), "the model returned a single tensor, leave output out"),
    ((*GOOD, "--data", "./nets_bad.py:data_raises"), "raised FileNotFoundError: train.csv"),
    ((*GOOD, "--data", "./nets_bad.py:data_keywords"), "Linear takes no argument 'images': it takes input"),
    ((*GOOD, "--data", "./nets_bad.py:data_numpy"), "torch.from_numpy"),
    ((*GOOD, "--data", "./nets_bad.py:data_generator"), "torch.from_numpy"),
    ((*GOOD, "--data", "./nets_bad.py:needs"), "needs arguments"),
    # output files
    ((*GOOD, "--json", "absent/report.json"), "there is no folder 'absent'"),
    ((*GOOD, "--csv", "absent/report.csv"), "there is no folder 'absent'"),
    ((*GOOD, "--json", "folder"), "it is a folder"),
    ((*GOOD, "--json", "/proc/report.json"), "/proc"),
    ((*GOOD, "--plots", "good.pt/plots"), "good.pt"),
    # the command line itself
    ((*GOOD, "--jsn", "x"), "No such option"),
    ((), "MODEL"),
]


def check_refusal(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts)
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("hessdiag: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    assert "Traceback" not in err
    assert message in err
    assert len(err) < 1200 or "9999" in err
    assert sorted(path for path in Path().rglob("*") if "__pycache__" not in path.parts) == before


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=[" ".join(a)[:60] for a, _ in REFUSED])
def test_diagnose_refuses_in_one_line(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    check_refusal(("diagnose", *arguments), message, capsys)


SHARED = [case for case in REFUSED if not {"--json", "--csv", "--plots", "--loss", "--jsn"} & set(case[0]) and case[0]]


@pytest.mark.parametrize(("arguments", "message"), SHARED[::4], ids=[" ".join(a)[:60] for a, _ in SHARED[::4]])
def test_describe_refuses_alike(arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    if "nan_weights" not in arguments[0]:
        check_refusal(("describe", *arguments), message, capsys)


def full(*args: object, **kwargs: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def read_only(*args: object, **kwargs: object) -> None:
    raise OSError(errno.EROFS, "Read-only file system")


class FullStream:
    """A file that takes nothing."""

    def __init__(self, handle: int, *args: object) -> None:
        self.handle = handle

    def __enter__(self) -> "FullStream":
        return self

    def __exit__(self, *args: object) -> None:
        os.close(self.handle)

    write = staticmethod(full)


FAILURES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "fsync": lambda patch: patch.setattr(os, "fsync", full),
    "replace": lambda patch: patch.setattr(os, "replace", full),
    "write": lambda patch: patch.setattr(os, "fdopen", FullStream),
    "create": lambda patch: patch.setattr(tempfile, "mkstemp", read_only),
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("option", [("--json", "r.json"), ("--csv", "r.csv"), ("--plots", "folder")])
def test_a_full_or_read_only_disk_leaves_nothing_half_written(
    option: tuple[str, str], failure: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FAILURES[failure](monkeypatch)
    message = "Read-only file system" if failure == "create" else "No space left on device"
    check_refusal(("diagnose", *GOOD, "--batch-size", "2", *option), message, capsys)


@pytest.mark.parametrize("failure", ["fsync", "replace"])
def test_an_older_file_survives_a_full_disk(failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("r.json").write_text("older")
    FAILURES[failure](monkeypatch)
    assert main(["diagnose", *GOOD, "--batch-size", "2", "--json", "r.json"]) == 2
    assert Path("r.json").read_text() == "older"


def test_a_folder_that_may_not_be_written_is_refused_before_measuring(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr("hessdiag.cli.options.Subject.prepare", lambda *_, **__: pytest.fail("prepared all the same"))
    check_refusal(("diagnose", "lenet", "--batch-size", "100000", "--json", "folder/r.json"), "not writable", capsys)


def test_no_malicious_code_ran(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("malicious.pt", "malicious.pkl"):
        check_refusal(("diagnose", *WEIGHTS, name), "could run code", capsys)
    assert not Path("victim").exists()
    pickle.loads(Path("malicious.pkl").read_bytes())  # it would have worked
    assert Path("victim").exists()
