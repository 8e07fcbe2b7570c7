"""The documentation site: `python -P -m sphinx -W docs docs/_build/html`, with the extra `docs`.

Pages are Markdown; the API comes from the docstrings of the installed package, the gallery from the
programs in `examples`. Both are generated into folders that are not committed.
"""

import importlib
import inspect
import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes

import fastpoly

# Use one thread, so that the plots are the same everywhere.
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "fastpoly"
author = "the fastpoly developers"
copyright = author
version = release = fastpoly.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    # MathJax comes from the site itself, so that formulas need no network.
    "sphinx-mathjax-offline",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "examples", "templates"]
templates_path = ["templates"]

myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3  # links to headings, as in guide.md#saving

html_theme = "pydata_sphinx_theme"
html_title = f"fastpoly {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = False
# Pages without pages below them have no navigation on the left.
ALONE = "index guide choosing large core migrating architecture promises benchmarks changelog"
html_sidebars = {page: [] for page in ALONE.split()}
html_theme_options = {
    "navbar_align": "left",
    "header_links_before_dropdown": 6,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}

# Names in `backticks` are code, and links where the API has them.
default_role = "py:obj"
toc_object_entries_show_parents = "hide"
smartquotes = False  # "l1/l2" is a string of Python
autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say more than annotations do
python_maximum_signature_line_length = 88
numpydoc_show_class_members = False  # the template of classes lists them


def own_members(name: str) -> dict[str, list[str]]:
    """Documented methods and properties of a class that fastpoly defines, for the template.

    Those that scikit-learn gives to every estimator are left out.
    """
    module, _, cls_name = name.rpartition(".")
    cls = getattr(importlib.import_module(module), cls_name)
    found: dict[str, list[str]] = {"methods": [], "properties": []}
    for member in dir(cls):
        owner = next((base for base in cls.__mro__ if member in vars(base)), object)
        value = vars(owner).get(member)
        ours = owner.__module__.startswith("fastpoly")
        if member.startswith("_") or member.endswith("_request") or not ours:
            continue
        if not inspect.getdoc(value):
            continue
        if inspect.isdatadescriptor(value) or type(value).__name__ == "cached_property":
            found["properties"].append(member)
        elif callable(getattr(cls, member, None)) or hasattr(value, "fn"):  # available_if
            found["methods"].append(member)
    return found


suppress_warnings = ["config.cache"]  # a function in the context is not cached, nor need it be
autosummary_context = {"own_members": own_members}

sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "backreferences_dir": "gallery/backreferences",
    "doc_module": ("fastpoly",),
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 60,  # seconds; those of a shared machine say little
    "capture_repr": ("_repr_html_",),  # tables, but not what matplotlib returns
}


def escape(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Escape |x|, which is not a substitution, and names like classes_, which are not links."""
    for number, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            pieces = re.split(r"(`+.*?`+)", line)
            pieces[::2] = [re.sub(r"(\||(?<=\w)_(?!\w))", r"\\\1", piece) for piece in pieces[::2]]
            lines[number] = "".join(pieces)


def drop_self(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: Any
) -> tuple[str, Any] | None:
    """Remove `self` from the signatures of compiled methods."""
    if what == "method" and signature and signature.startswith("(self"):
        return re.sub(r"^\(self(, )?", "(", signature), returns
    return None  # ask the next handler


# Where the names of the API are documented: "ndcg" at "fastpoly.metrics.ndcg".
listed = re.findall(r"^   ([\w.]+)$", Path(__file__).with_name("api.rst").read_text(), re.MULTILINE)
API = {name.rpartition(".")[2]: f"fastpoly.{name}" for name in listed}
API |= {place: place for place in API.values()}


def link_names(app: Any, doctree: nodes.document) -> None:
    """Turn names of the API that are code in pages and docstrings into links."""
    for link in doctree.findall(addnodes.pending_xref):
        if link.get("reftype") == "obj" and link["reftarget"] in API:
            link["reftarget"] = API[link["reftarget"]]
    for node in list(doctree.findall(nodes.literal)):
        linked = isinstance(node.parent, (nodes.reference, addnodes.pending_xref))
        if node.astext() in API and not linked:
            place = API[node.astext()]
            link = addnodes.pending_xref(
                refdomain="py", reftype="obj", reftarget=place, refdoc=app.env.docname
            )
            node.replace_self(link)
            link += node


def setup(app: Any) -> None:
    app.connect("autodoc-process-signature", drop_self, priority=100)  # before numpydoc
    app.connect("doctree-read", link_names)
    app.connect("autodoc-process-docstring", escape, priority=100)
