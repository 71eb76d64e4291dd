"""Sizes and names of modules and functions. Which package may import which is checked by `lint-imports`."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import hessdiag
from tests.pages import ROOT, read

PACKAGE = Path(hessdiag.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
TEXTS = {path: path.read_text(encoding="utf-8") for path in MODULES}
MAX_FILES, MAX_LINES = 116, 22_400
MAX_FILE_LINES = 700
MAX_FUNCTION_LINES = 60  # without the docstring


@cache
def trees() -> Mapping[Path, ast.Module]:
    return {path: ast.parse(text) for path, text in TEXTS.items()}


def test_the_house_stays_small_and_no_module_is_a_drawer() -> None:
    names = {path.stem for path in MODULES} | {path.parent.name for path in MODULES}
    assert names & {"utils", "util", "helpers", "helper", "misc", "common", "base"} == set()
    assert len(MODULES) <= MAX_FILES
    assert sum(text.count("\n") for text in TEXTS.values()) <= MAX_LINES


def test_no_modules_import_one_another_in_a_circle() -> None:
    """Imports inside functions and for type checking count, packages' own `__init__` do not."""
    names = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in MODULES}
    graph = {}
    for name, path in names.items():
        nodes = [n for n in ast.walk(trees()[path]) if isinstance(n, ast.ImportFrom)]
        asked = {n.module for n in nodes} | {f"{n.module}.{alias.name}" for n in nodes for alias in n.names}
        graph[name] = asked & names.keys()
    assert tuple(TopologicalSorter(graph).static_order())  # raises CycleError, with the circle


def test_the_tour_of_the_code_names_files_that_exist() -> None:
    named = re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", read("CONTRIBUTING.md"))
    assert [name for name in named if not any((root / name).exists() for root in (ROOT, PACKAGE))] == []


def test_a_file_is_one_concept_and_a_function_fits_on_a_screen() -> None:
    for path in MODULES:
        assert TEXTS[path].count("\n") <= MAX_FILE_LINES, path
        assert {name: lines for name, lines in functions(trees()[path]) if lines > MAX_FUNCTION_LINES} == {}, path


def functions(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from functions(node, prefix)
            continue
        if not isinstance(node, ast.ClassDef):
            yield prefix + node.name, lines_of(node)
        yield from functions(node, f"{prefix}{node.name}.")


def lines_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, with its signature and without its docstring."""
    first = node.body[0]
    docstring = first if isinstance(first, ast.Expr) and ast.get_docstring(node) is not None else None
    skipped = (docstring.end_lineno or 0) - docstring.lineno + 1 if docstring else 0
    return (node.end_lineno or 0) - node.lineno + 1 - skipped


def test_lines_are_counted_without_the_docstring() -> None:
    tree = ast.parse('class A:\n    def f(self):\n        """One\n\n        two."""\n        return 1\n')
    assert list(functions(tree)) == [("A.f", 2)]
