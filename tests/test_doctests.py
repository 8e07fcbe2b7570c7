"""The examples in docstrings, compiled modules included, in the README and under docs/."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import fastpoly

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *(
        ROOT / "docs" / f"{name}.md"
        for name in ("core", "guide", "index", "large", "mathematics", "migrating", "training")
    ),
]
MODULES = ["fastpoly"] + [
    found.name
    for found in pkgutil.walk_packages(fastpoly.__path__, "fastpoly.")
    if not found.name.endswith("__main__")
]

# Modules that need an extra, and a package of it.
EXTRAS = {"fastpoly.dask": "distributed", "fastpoly.onnx": "skl2onnx"}


def documented(module):
    """(name, docstring) of a module, its functions, its classes and their members.

    The finder of doctest does not see what Cython has compiled.
    """
    yield module.__name__, inspect.getdoc(module)
    for name, thing in vars(module).items():
        if getattr(thing, "__module__", None) != module.__name__:
            continue
        yield name, getattr(thing, "__doc__", None)
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                yield f"{name}.{member}", getattr(value, "__doc__", None)


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name])
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    parser, report = doctest.DocTestParser(), []
    for owner, text in documented(module):
        if isinstance(text, str) and ">>>" in text:
            example = parser.get_doctest(text, {}, f"{name}.{owner}", None, 0)
            runner.run(example, out=report.append)
    assert not runner.failures, "".join(report)


def test_compiled_examples_are_found():
    from fastpoly.kernels import loss, losses

    owners = [*documented(loss), *documented(losses)]
    found = [owner for owner, text in owners if isinstance(text, str) and ">>>" in text]
    assert "Loss.value_grad" in found
    assert "get_loss" in found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages(page, tmp_path, monkeypatch):
    """Their examples, in order and in one namespace: programs, and sessions with their output."""
    monkeypatch.chdir(tmp_path)
    if "fastpoly.plotting" in page.read_text():
        pytest.importorskip("matplotlib").use("Agg")
    if "onnxruntime" in page.read_text():
        pytest.importorskip("skl2onnx")
        pytest.importorskip("onnxruntime")
    pattern = r"^```(python|pycon)\n(.*?)^```"
    blocks = re.findall(pattern, page.read_text(), re.MULTILINE | re.DOTALL)
    assert blocks, f"{page.name} has no example"
    namespace, report = {}, []
    parser, runner = doctest.DocTestParser(), doctest.DocTestRunner()
    for number, (kind, block) in enumerate(blocks):
        name = f"{page.name}, example {number + 1}"
        if kind == "python":
            exec(compile(block, name, "exec"), namespace)
        else:
            session = parser.get_doctest(block, namespace, name, None, 0)
            runner.run(session, out=report.append, clear_globs=False)
            namespace = session.globs
    assert not runner.failures, "".join(report)


def test_every_page_is_tested_or_without_examples():
    without = {"architecture.md", "benchmarks.md", "changelog.md", "choosing.md", "promises.md"}
    tested = {page.name for page in PAGES[1:]}
    assert {page.name for page in (ROOT / "docs").glob("*.md")} == tested | without
    for name in without:
        assert not re.search(r"^```py", (ROOT / "docs" / name).read_text(), re.MULTILINE), name


def test_api_page_lists_every_public_name():
    listed = re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "api.rst").read_text(), re.MULTILINE)
    assert len(set(listed)) == len(listed)
    assert set(fastpoly.__all__) - {"__version__"} <= set(listed)
    for name in listed:
        module, _, last = f"fastpoly.{name}".rpartition(".")
        if module not in EXTRAS:
            assert inspect.getdoc(getattr(importlib.import_module(module), last)), name


def test_links_lead_somewhere():
    """The links from the pages to files of the project."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            assert "://" in link or (page.parent / link).exists(), (page.name, link)


def test_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


def test_readme_has_two_commands():
    assert len(re.findall(r"^```sh$", (ROOT / "README.md").read_text(), re.MULTILINE)) == 2


PROSE = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PROSE, ids=lambda path: path.name)
def test_pages_name_what_exists(page):
    """Files, and names of the package such as `fastpoly.dask`, in code of the text of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    if page.name == "CHANGELOG.md":  # it also names what is gone
        return
    code = [piece for piece in re.findall(r"`([^`]+)`", text) if "fastpoly_client" not in piece]
    files = {
        name for piece in code for name in re.findall(r"[\w/.]*\w\.(?:py|pyx|md|sh|yml)\b", piece)
    }
    known = [f"/{path.relative_to(ROOT)}" for path in ROOT.rglob("*") if "build" not in path.parts]
    assert not [name for name in files if not any(path.endswith(f"/{name}") for path in known)]
    for name in {name for piece in code for name in re.findall(r"fastpoly(?:\.\w+)+", piece)}:
        if ".".join(name.split(".")[:2]) not in EXTRAS:
            assert find(name) is not None, name


def find(name):
    """The module, or the attribute of one, with this dotted name."""
    try:
        return importlib.import_module(name)
    except ImportError:
        above, _, last = name.rpartition(".")
        return getattr(importlib.import_module(above), last, None)
