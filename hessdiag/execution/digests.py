"""What any Python value comes to, code included, as a digest that is the same in every process.

Functions count by their bytecode, defaults and closures, and, where they are not of an installed library, by the values
of the globals that they read, and so on through whatever those call. Objects count by their class and attributes,
tensors and arrays by all of their numbers. What differs between processes that run the same code is left out:
addresses, the order of sets, names of files and modules, line numbers. Libraries are told apart by their versions.
"""

from __future__ import annotations

import dis
import hashlib
import re
import site
import sys
import sysconfig
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cache, cached_property, partial
from pathlib import Path
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

LENGTH = 16  # bytes of a digest
ADDRESS = re.compile(r"0x[0-9a-fA-F]+")  # of an object without a text of its own: new in every process
MAX_OBJECTS = 20_000  # objects that are followed: what lies farther away is known by its type alone
ADDRESSES = 2**32  # above it
NESTED = 30  # containers inside one another, likewise
PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), range, torch.dtype, torch.layout)
SHOWN = (torch.memory_format, slice, re.Pattern, Path)  # by their texts
SEQUENCES = (list, tuple, deque)
# what a module keeps for torch: its tensors and parts are summed up on their own
OWN = {"_parameters", "_buffers", "_modules", "_non_persistent_buffers_set", "training"}


def digest_of(values: Iterable[object], *, known: Iterable[object] = ()) -> str:
    """Of any values, in order.

    Args:
        values: what to sum up.
        known: objects whose content is summed up elsewhere: they count by their place in this list.
    """
    content = Content(known)
    for value in values:
        content.add(value)
    return content.digest()


class Content:
    """Sums values up, each object once: met again, it counts by its number, so that circles end.

    What has parts is put off, first come, first served: the stack stays shallow, and the nearest things count first.
    """

    def __init__(self, known: Iterable[object] = ()) -> None:
        self.summed = hashlib.blake2b(digest_size=LENGTH)
        self.met: dict[int, tuple[int, object]] = {}  # holds on to them, or else their ids were used again
        self.later: deque[Callable[[], None]] = deque()
        for value in known:
            self._number(value)

    def digest(self) -> str:
        """Of all that was added, and of what hangs on it."""
        while self.later:
            self.later.popleft()()
        return self.summed.hexdigest()

    def add(self, value: Any, nested: int = 0) -> None:
        """Sum up one value."""
        kind = type(value)
        if kind in PLAIN or isinstance(value, SHOWN):
            self._text(f"{kind.__name__} {value!r}")
        elif isinstance(value, (torch.device, ModuleType)):  # ranks have each their own device
            self._text(f"{kind.__name__} {value.type if isinstance(value, torch.device) else _library(value.__name__)}")
        elif isinstance(value, CodeType):
            self._add_code(value, nested)
        elif kind is tuple or isinstance(value, frozenset):  # not numbered: equal constants may be one object or two
            self._add_container(value, nested)
        elif id(value) in self.met:
            self._text(f"again {self.met[id(value)][0]}")
        elif len(self.met) >= MAX_OBJECTS:
            self._text(f"beyond {kind.__qualname__}")
        else:
            self._number(value)
            self._add_met(value, nested)

    def _add_met(self, value: Any, nested: int) -> None:
        if isinstance(value, Tensor):
            self._add_tensor(value)
        elif isinstance(value, (np.ndarray, np.generic)):
            self._text(f"array {value.dtype.str} {value.shape}")
            self.add(value.tolist() if value.dtype.hasobject else value.tobytes(), nested + 1)
        elif isinstance(value, (*SEQUENCES, set, dict, MappingProxyType)):
            self._add_container(value, nested)
        else:
            self._text(f"a {type(value).__qualname__}")
            self.later.append(partial(self._follow, value))

    def _follow(self, value: Any) -> None:
        """Sum up what has parts of its own."""
        self._text(f"of {self.met[id(value)][0]}")
        if isinstance(value, FunctionType):
            self._add_function(value)
        elif isinstance(value, type):
            self._add_class(value)
        elif isinstance(value, nn.Module):
            self.add(type(value))
            self.add(parts_of(value))
            self.add([*value.named_parameters(recurse=False), *value.named_buffers(recurse=False)])
            self.add(dict(value._modules))
        else:
            for part in _parts(value):
                self.add(part)

    def _add_function(self, function: FunctionType) -> None:
        self._text(f"{function.__qualname__} of {_library(function.__globals__.get('__name__'))}")
        self._add_code(function.__code__, 0)
        for part in (function.__defaults__, function.__kwdefaults__, _closure(function), vars(function)):
            self.add(part)
        if not is_library(function.__globals__.get("__name__")):
            for name, value in _globals_read(function):
                self._text(name)
                self.add(value)

    def _add_class(self, cls: type) -> None:
        self._text(f"{cls.__qualname__} of {_library(cls.__module__)}")
        if _top(cls.__module__) == "torch" or _top(cls.__module__) in sys.stdlib_module_names:
            return  # their versions say it all
        self.add(cls.__bases__)
        library = is_library(cls.__module__)
        for name, value in sorted(vars(cls).items()):
            is_code = isinstance(value, (FunctionType, property, staticmethod, classmethod, cached_property))
            if is_code or not (library or name.startswith("__") or name == "_abc_impl"):
                self._text(name)
                self.add(value)

    def _add_code(self, code: CodeType, nested: int) -> None:
        """Bytecode as compiled, never as an interpreter specialised it while running."""
        self._text(f"{code.co_code.hex()} {code.co_names} {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}")
        self._text(getattr(code, "co_exceptiontable", b"").hex())
        self.add(code.co_consts, nested + 1)

    def _add_container(self, value: Any, nested: int) -> None:
        self._text(f"{type(value).__qualname__} of {len(value)}")
        if nested >= NESTED:
            return
        if isinstance(value, (dict, MappingProxyType)):
            keyed = sorted((_alone(key, nested), number) for number, key in enumerate(value))
            values = list(value.values())
            for key, number in keyed:
                self._text(key)
                self.add(values[number], nested + 1)
        elif isinstance(value, (set, frozenset)):
            self._text(" ".join(sorted(_alone(each, nested) for each in value)))
        else:
            for each in value:
                self.add(each, nested + 1)

    def _add_tensor(self, value: Tensor) -> None:
        self._text(f"tensor {value.dtype} {tuple(value.shape)} {value.layout}")
        if value.layout is torch.strided and not value.is_meta:
            self.summed.update(bytes_of(value))

    def _number(self, value: object) -> None:
        self.met.setdefault(id(value), (len(self.met), value))

    def _text(self, text: str) -> None:
        self.summed.update(f"{len(text)} {text}".encode(errors="surrogatepass"))


def bytes_of(tensor: Tensor) -> memoryview:
    """The numbers of a dense tensor."""
    values = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous().reshape(-1).view(torch.uint8)
    return values.numpy().data


def parts_of(module: nn.Module) -> dict[str, Any]:
    """What a module holds beside its tensors and parts; of its hooks the functions, whose keys count them."""
    if type(module).__module__.startswith("torch._dynamo"):  # a compiled module is its original, kept as a part
        return {}
    return {
        name: list(value.values()) if "hooks" in name and isinstance(value, dict) else value
        for name, value in vars(module).items()
        if name not in OWN
    }


@cache
def is_library(module: str | None) -> bool:
    """Whether a module belongs to Python or to an installed package, rather than to the user."""
    file = getattr(sys.modules.get(module or ""), "__file__", None)
    if file is None or _top(module) == "torch":
        return _top(module) == "torch" or _top(module) in sys.stdlib_module_names
    return any(folder in Path(file).resolve().parents for folder in _folders())


@cache
def _folders() -> frozenset[Path]:
    """Where Python and installed packages lie."""
    paths = sysconfig.get_paths()
    found = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return frozenset(Path(folder).resolve() for folder in (*found, site.getusersitepackages()))


def _top(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _library(module: str | None) -> str:
    """Name and version of a library's module; nothing of a user's, whose files may be moved."""
    if not is_library(module):
        return "the user"
    version = getattr(sys.modules.get(_top(module)), "__version__", "")
    return f"{module} {version}"


def _alone(value: object, nested: int) -> str:
    """Digest of an element of a set, or of a key, whose order means nothing: functions and classes by name."""
    content = Content()
    content.add(getattr(value, "__qualname__", None), nested + 1)
    content.add(value, nested + 1)
    return content.summed.hexdigest()


def _closure(function: FunctionType) -> list[object]:
    held = [_held(cell) for cell in function.__closure__ or ()]
    return [_not_an_address(value) for value in held] if is_library(function.__globals__.get("__name__")) else held


def _not_an_address(value: object) -> object:
    """What libraries keep by the ids of objects, which are new in every process."""
    return None if type(value) is int and value > ADDRESSES else value


def _held(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def _parts(value: Any) -> Iterator[object]:
    """What an object counts by, beside the name of its type."""
    if isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, property):
        yield from (value.fget, value.fset)
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, Enum):
        yield from (type(value), value.name)
    elif isinstance(value, BuiltinFunctionType) or not hasattr(value, "__dict__"):
        yield getattr(value, "__qualname__", "")
        yield from (type(value), _slots(value))
    elif _top(type(value).__module__) == "torch" or _top(type(value).__module__) in sys.stdlib_module_names:
        plain = (*PLAIN, FunctionType, MethodType, partial)  # the rest may be anything: locks, caches, handles
        yield {name: _not_an_address(part) for name, part in vars(value).items() if isinstance(part, plain)}
    elif is_library(type(value).__module__):
        yield type(value)
        yield {name: part for name, part in vars(value).items() if "hash" not in name}  # hashes are salted
    else:
        yield from (type(value), vars(value), _slots(value))


def _slots(value: Any) -> dict[str, object]:
    """Attributes in slots, of user's classes; those of a library's may be anything."""
    slots = (vars(cls).get("__slots__", ()) for cls in type(value).__mro__ if not is_library(cls.__module__))
    names = [name for each in slots for name in ([each] if isinstance(each, str) else each)]
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def _globals_read(function: FunctionType) -> Iterator[tuple[str, object]]:
    """The globals that a function reads, by name, and what it takes from the user's modules among them."""
    globally, names = _names(function.__code__)
    for name in globally:
        if name in function.__globals__:
            yield from _reached(name, function.__globals__[name], names)


def _reached(path: str, value: object, names: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    if isinstance(value, ModuleType) and not is_library(value.__name__):
        for name in names:
            if name in vars(value) and vars(value)[name] is not value and path.count(".") < NESTED:
                yield from _reached(f"{path}.{name}", vars(value)[name], names)
    else:
        yield path, value


@cache
def _names(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of globals, and all names, that a code and those inside it read."""
    read = dis.get_instructions(code)
    globally: set[str] = {each.argval for each in read if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner = _names(constant)
            globally.update(inner[0])
            names.update(inner[1])
    return tuple(sorted(globally)), tuple(sorted(names))
