"""From `package.module:function` or `./file.py:function` to that function, and calling it.

Code of users may fail in any way: everything that it raises becomes one line that names it, and its prints go to
stderr, because stdout is for results. Its folder is on `sys.path` only while it runs.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from hessdiag.arguments import did_you_mean, few, one_line
from hessdiag.errors import HessdiagError


@dataclass(frozen=True)
class NamedFunction:
    """A function or class, and the text that named it.

    Attributes:
        what: the option that it is for, in messages: `"model"`, `"--init"`, `"--data"`.
        reference: as typed.
        function: what is called.
        folder: where modules beside it are found; empty for nowhere in particular.
    """

    what: str
    reference: str
    function: Callable[..., Any]
    folder: str = ""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"{self.what} {self.reference!r}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call it."""
        with self.running():
            return self.function(*args, **kwargs)

    def running(self) -> AbstractContextManager[None]:
        """Run more of the same author's code, such as a generator that the function returned."""
        return foreign_code(self.label, self.folder)

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Refuse keyword arguments that the function does not take, and a lack of those that it needs."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):  # some functions written in C tell nothing
            return
        parameters = signature.parameters.values()
        named = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        for key in arguments:
            if key not in named and not any(p.kind is p.VAR_KEYWORD for p in parameters):
                hint = did_you_mean(key, named, otherwise=f"it takes {few(named, 8)}" if named else "it takes none")
                raise HessdiagError(f"{self.label} takes no argument {key!r}: {hint}")
        missing = [p.name for p in parameters if p.name in {*named} - {*arguments} and p.default is p.empty]
        if missing and self.what == "model":
            pairs = ", ".join(f"{name!r}: VALUE" for name in missing)
            options = " ".join(f"--arg {name}=VALUE" for name in missing)
            raise HessdiagError(f"{self.label} needs arguments: pass arguments={{{pairs}}} ({options})")
        if missing:
            raise HessdiagError(f"{self.label} is called without arguments: give {few(missing)} a default value")


def load_function(reference: str, *, what: str) -> NamedFunction:
    """The function or class that a reference names; its module is imported, or its file run, once.

    Args:
        reference: `package.module:function`, importable from the current directory too, or `./file.py:function`.
        what: what it is for, in messages.

    >>> load_function("math:sqrt", what="--data")(4)
    2.0
    """
    place, _, name = reference.rpartition(":")
    label = f"{what} {reference!r}"
    if not place or not name:
        raise HessdiagError(f"{label}: name a function, as in package.module:function or ./file.py:function")
    is_file = place.endswith(".py") or "/" in place or os.sep in place
    folder = str(Path(place).resolve().parent if is_file else Path.cwd())
    module = _run_file(Path(place), label, folder) if is_file else _import_module(place, label, folder)
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [k for k, v in vars(found).items() if callable(v) and not k.startswith("_")]
            hint = did_you_mean(part, known, otherwise=f"it has {few(known, 8)}" if known else "it has no functions")
            raise HessdiagError(f"{label}: there is no {name!r} in {place}; {hint}")
        found = getattr(found, part)
    if not callable(found):
        raise HessdiagError(f"{label}: {name} is a {type(found).__name__}, name a function or a class")
    return NamedFunction(what, reference, found, folder)


@contextmanager
def foreign_code(label: str, folder: str = "") -> Iterator[None]:
    """Run somebody else's code: prints go to stderr, errors become one line that starts with `label`."""
    if folder:
        sys.path.insert(0, folder)
    try:
        with redirect_stdout(sys.stderr):
            yield
    except HessdiagError:
        raise
    except (Exception, SystemExit) as error:
        raise HessdiagError(f"{label} raised {one_line(error)}{_place(error, folder)}") from error
    finally:
        if folder and folder in sys.path:
            sys.path.remove(folder)


def import_library(name: str, *, label: str, install: str) -> Any:
    """Import an optional library, or say what installs it."""
    library = name.partition(".")[0]
    with foreign_code(label):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != library:
                raise
            raise HessdiagError(f"{label} needs {library}, which is not installed: pip install {install}") from error


def missing_file(path: Path, pattern: str = "*") -> str:
    """Describe a file that does not exist: the nearest names in its folder, or that there is no such folder."""
    if path.is_dir():
        return f"{str(path)!r} is a folder, name a file in it"
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}"
    found = sorted(entry.name for entry in path.parent.glob(pattern) if entry.is_file())
    hint = did_you_mean(path.name, found, otherwise=f"the folder has {few(found, 8)}" if found else "")
    return f"there is no file {str(path)!r}" + (f"; {hint}" if hint else "")


def _place(error: BaseException, folder: str) -> str:
    """Where in the author's own files it was raised."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if folder in map(str, Path(f.filename).parents)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _run_file(path: Path, label: str, folder: str) -> ModuleType:
    """The module that a file makes; run again only when the file has changed."""
    if not path.is_file():
        raise HessdiagError(f"{label}: {missing_file(path, '*.py')}")
    if path.suffix != ".py":
        raise HessdiagError(f"{label}: {str(path)!r} is not a Python file, its name must end in .py")
    state = f"{path.resolve()}/{path.stat().st_mtime_ns}/{path.stat().st_size}"
    name = f"{path.stem}_{hashlib.blake2s(state.encode(), digest_size=6).hexdigest()}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their own module up
        try:
            with foreign_code(label, folder):
                spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


def _import_module(place: str, label: str, folder: str) -> ModuleType:
    if not all(part.isidentifier() for part in place.split(".")):
        raise HessdiagError(f"{label}: {place!r} is not a module's name, write it as in package.module:function")
    with foreign_code(label, folder):
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if not f"{place}.".startswith(f"{missing}."):
                raise  # the module exists; something that it imports does not
            parent, _, last = missing.rpartition(".")
            paths = getattr(sys.modules[parent], "__path__", []) if parent else None
            names = [module.name for module in pkgutil.iter_modules(paths)]
            if not parent:
                names += ["lenet", "mlp", "hf", "timm", "torchvision"] if label.startswith("model") else []
            hint = did_you_mean(last, names, otherwise=f"it has {few(names, 8)}" if parent and names else "")
            raise HessdiagError(f"{label}: there is no module {missing!r}" + (f"; {hint}" if hint else "")) from error
