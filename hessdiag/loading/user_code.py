"""From `package.module:function` or `./file.py:function` to that function, and calling it.

Code of users may fail in any way: everything that it raises becomes one line that names it, and its prints go to
stderr, because stdout is for results. Its folder is on `sys.path` only while it runs.
"""

import hashlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, redirect_stdout
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

from hessdiag.arguments import did_you_mean, one_line
from hessdiag.errors import HessdiagError


@dataclass(frozen=True)
class NamedFunction:
    """A function or class, and the text that named it."""

    what: str  # the option that it is for, in messages: "model", "--init", "--data"
    reference: str  # as typed
    function: Callable[..., Any]  # what is called
    folder: str = ""  # where modules beside it are found; empty for nowhere in particular

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
            inspect.signature(self.function).bind(**arguments)
        except ValueError:  # some functions written in C tell nothing
            return
        except TypeError as error:
            how = "pass arguments={'NAME': VALUE} (--arg NAME=VALUE)" if self.what == "model" else "give it a default"
            raise HessdiagError(f"{self.label}{inspect.signature(self.function)}: {error}: {how}") from error


def load_function(reference: str, *, what: str) -> NamedFunction:
    """The function or class that a reference names, or data; its module is imported, or its file run, once.

    A reference is `package.module:function`, importable from the current directory too, or `./file.py:function`.

    >>> load_function("math:sqrt", what="--data")(4)
    2.0
    """
    place, _, name = reference.rpartition(":")
    label = f"{what} {reference!r}"
    if not place or not name:
        raise HessdiagError(f"{label}: name a function, as in package.module:function or ./file.py:function")
    is_file = place.endswith(".py") or "/" in place or os.sep in place
    folder = str(Path(place).resolve().parent if is_file else Path.cwd())
    with foreign_code(label, folder):
        module = _run_file(Path(place), label) if is_file else importlib.import_module(place)
    try:
        found = attrgetter(name)(module)
    except AttributeError as error:
        hint = did_you_mean(name, vars(module))
        raise HessdiagError(f"{label}: there is no {name!r} in {place}; {hint}".rstrip("; ")) from error
    if what == "--data" and not callable(found):  # a batch, a data set or a loader that is there
        return NamedFunction(what, reference, lambda: found, folder)
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
        how = ": parse arguments in `main`, not at import" if isinstance(error, SystemExit) else ""
        raise HessdiagError(f"{label} raised {one_line(error)}{_place(error, folder)}{how}") from error
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


def missing_file(path: Path) -> str:
    """Say that there is no such file, and which one beside it has the nearest name."""
    hint = did_you_mean(path.name, os.listdir(path.parent)) if path.parent.is_dir() else ""
    return f"there is no file {str(path)!r}; {hint}".rstrip("; ")


def _place(error: BaseException, folder: str) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if folder in map(str, Path(f.filename).parents)]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _run_file(path: Path, label: str) -> ModuleType:
    """The module that a file makes; run again only when the file has changed."""
    if not path.is_file():
        raise HessdiagError(f"{label}: {missing_file(path)}")
    state = f"{path.resolve()}/{path.stat().st_mtime_ns}/{path.stat().st_size}"
    name = f"{path.stem}_{hashlib.blake2s(state.encode(), digest_size=6).hexdigest()}"
    if name not in sys.modules:
        if (spec := importlib.util.spec_from_file_location(name, path)) is None or spec.loader is None:
            raise HessdiagError(f"{label}: {str(path)!r} is no Python file: name one that ends in .py")
        sys.modules[name] = importlib.util.module_from_spec(spec)  # dataclasses look their own module up
        try:
            spec.loader.exec_module(sys.modules[name])
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
