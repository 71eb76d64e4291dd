"""`package.module:function` and `./file.py:function`: found, run once, and refused in one line."""

import sys
from pathlib import Path

import pytest

from hessdiag.errors import HessdiagError
from hessdiag.loading.user_code import NamedFunction, foreign_code, load_function, missing_file

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
    function = load_function(reference, what="model")
    assert function(width=1) == 111
    assert sys.path == path
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
    ("./absent/net.py:build", "no file 'absent/net.py'$"),
    ("./bad_syntax.py:build", "raised SyntaxError: .* line 1"),
    ("needs_more:build", "raised ModuleNotFoundError: No module named 'not_installed_anywhere' .needs_more.py, line 1"),
    ("nets_here:NUMBER", "NUMBER is a int, name a function or a class"),
    ("not a module:build", "No module named 'not a module'"),
])  # fmt: skip
def test_what_cannot_be_found_is_named_with_the_nearest(folder: Path, reference: str, message: str) -> None:
    with pytest.raises(HessdiagError, match=message):
        load_function(reference, what="model")


def test_what_a_function_raises_is_one_line(folder: Path) -> None:
    told = {"broken": "raised KeyError: 'no such key' .nets_here.py, line 13", "leaves": "raised SystemExit: 3"}
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
