"""How Sphinx builds the documentation: `sphinx-build -W -n docs docs/_build`.

The pages are Markdown that also reads well where the repository is browsed, so that links lead to files of the
repository; `LINKS` leads them to pages.
"""

from __future__ import annotations

import os
import re
import sys
import zlib
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.intersphinx import resolve_reference_any_inventory

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the plots are of small networks: threads would wait for one another

import docstrings  # noqa: E402  # beside this file

project = "hessdiag"
author = "The hessdiag authors"
version = release = installed_version("hessdiag")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.intersphinx",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "plots"]
nitpicky = True
nitpick_ignore_regex = [  # types of arguments that callers do not make, and a type variable
    ("py:class", r"hessdiag\.(derivatives|curvature|network)\..*"),
    ("py:class", r"hessdiag\.calculus\.(call|graph)\..*"),
    ("py:class", r"hessdiag\.results\.records\.R"),
    (
        "py:class",
        "LossFunction|BatchDim|Pair|Figure",
    ),  # a callable; a structure; inputs and targets; of matplotlib
]
default_role = "code"  # docstrings mark code as Markdown does

smartquotes = False  # quotes are code, more often than not

html_theme = "furo"
html_title = "hessdiag"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}

myst_heading_anchors = 4
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"

autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True

sphinx_gallery_conf: dict[str, Any] = {
    "examples_dirs": "plots",
    "gallery_dirs": "auto_plots",
    "filename_pattern": "/plot_",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("figure_scraper",),  # a module, by name
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1000,
    "remove_config_comments": True,
    "write_computation_times": False,
}

LINKS = {  # from what the repository has to where it stands on the site
    "(../README.md)": "(index.md)",
    "(../CONTRIBUTING.md)": "(contributing.rst)",
    "(../CHANGELOG.md)": "(changelog.rst)",
}
PLOTS = re.compile(r"\(plots/(plot_\w+)\.py\)")  # the scripts' own pages are made while the site is built
TYPES = {  # how annotations name a class, and how its documentation does
    "torch.nn.modules.module.Module": "torch.nn.Module",
    "torch.nn.modules.container.Sequential": "torch.nn.Sequential",
    "torch._C.Generator": "torch.Generator",
    "nn.Module": "torch.nn.Module",
    "pd.DataFrame": "pandas.DataFrame",
}
INVENTORIES = {
    "python": "https://docs.python.org/3/",
    "torch": "https://docs.pytorch.org/docs/stable/",
    "numpy": "https://numpy.org/doc/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "matplotlib": "https://matplotlib.org/stable/",
}


def packed(name: str) -> str:
    """Pack an inventory of `inventories/`, which is text, as Sphinx reads it; return the path of the file.

    They hold the few names that are linked to, so that a build needs no network; `scripts/docs_inventories.py` makes
    them from those that the projects publish.
    """
    head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n# The rest is compressed using zlib.\n"
    body = (DOCS / "inventories" / f"{name}.txt").read_bytes()
    target = DOCS / "_build" / "inventories" / f"{name}.inv"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(head.encode() + zlib.compress(body))
    return str(target)


intersphinx_mapping = {name: (url, packed(name)) for name, url in INVENTORIES.items()}


def lead_to_pages(app: Sphinx, page: str, source: list[str]) -> None:
    """Rewrite links to files of the repository."""
    for link, to in LINKS.items():
        source[0] = source[0].replace(link, to)
    source[0] = PLOTS.sub(r"(auto_plots/\1.rst)", source[0])


def find_type(
    app: Sphinx, environment: BuildEnvironment, node: pending_xref, shown: nodes.TextElement
) -> nodes.reference | None:
    """Look a class up under the name that its documentation has for it."""
    name = TYPES.get(node.get("reftarget", ""))
    if name is None:
        return None
    node["reftarget"] = name
    return resolve_reference_any_inventory(environment, False, node, nodes.literal(name, name))


def sample(app: Sphinx, failed: Exception | None) -> None:
    """Put the page of one report next to the others."""
    import torch

    import hessdiag

    if failed is None:
        torch.manual_seed(0)
        hidden = [layer for _ in range(12) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
        model = torch.nn.Sequential(*hidden, torch.nn.Linear(64, 5))
        report = hessdiag.diagnose(model, torch.randn(512, 64), torch.arange(512) % 5, progress=False)
        hessdiag.to_html(report, Path(app.outdir) / "report.html")


def setup(app: Sphinx) -> None:
    """Register what is above."""
    app.connect("build-finished", sample)
    app.connect("source-read", lead_to_pages)
    app.connect("missing-reference", find_type)
    app.connect("autodoc-process-docstring", docstrings.process)
