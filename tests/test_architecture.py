"""Names and sizes of modules and functions. Which room may import which is checked by `lint-imports`."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import hessdiag

PACKAGE = Path(hessdiag.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_TOP_MODULES = 8
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60  # without the docstring

# What may be longer, with the reason.
LONGER_FUNCTIONS = {
    "diagnose_command.diagnose": "every way to pass on a report, in order",
}


def test_no_name_of_a_module_occurs_twice() -> None:
    counts = Counter(path.name for path in MODULES if path.name != "__init__.py")
    assert [name for name, count in counts.items() if count > 1] == []


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Imports inside functions and for type checking count, packages' own `__init__` do not."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in MODULES}
    graph = {}
    for name, path in names.items():
        nodes = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
        asked = {n.module for n in nodes} | {f"{n.module}.{alias.name}" for n in nodes for alias in n.names}
        graph[name] = asked & names.keys()
    assert tuple(TopologicalSorter(graph).static_order())  # raises CycleError, with the circle


def test_the_top_level_is_short() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    assert len(modules) <= MAX_TOP_MODULES, sorted(modules)


def test_no_room_is_a_drawer() -> None:
    names = {path.stem for path in MODULES} | {path.parent.name for path in MODULES}
    assert names & {"utils", "util", "helpers", "helper", "misc", "common", "base"} == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_is_one_concept_and_a_function_fits_on_a_screen(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_FILE_LINES
    long = {name: lines for name, lines in functions(ast.parse(text), path.stem) if lines > MAX_FUNCTION_LINES}
    assert {name: lines for name, lines in long.items() if name not in LONGER_FUNCTIONS} == {}


def functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    """Dotted names of functions and their lines, without the docstring."""
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from functions(node, prefix)
            continue
        name = f"{prefix}.{node.name}"
        if not isinstance(node, ast.ClassDef):
            yield name, lines_of(node, with_signature=not prefix.endswith("_command"))  # there, a line is an option
        yield from functions(node, name)


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef, *, with_signature: bool) -> int:
    """Lines of a function without its docstring."""
    first = node.body[0]
    docstring = first if isinstance(first, ast.Expr) and ast.get_docstring(node) is not None else None
    skipped = (docstring.end_lineno or 0) - docstring.lineno + 1 if docstring else 0
    start = node.lineno if with_signature else first.lineno
    return (node.end_lineno or 0) - start + 1 - skipped


def test_lines_are_counted_without_the_docstring() -> None:
    tree = ast.parse('class A:\n    def f(self):\n        """One\n\n        two."""\n        return 1\n')
    assert list(functions(tree, "m")) == [("m.A.f", 2)]
