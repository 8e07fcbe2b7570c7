"""The examples in docstrings, compiled modules included, and in the README."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import fastpoly

README = Path(__file__).parent.parent / "README.md"
MODULES = ["fastpoly"] + [
    found.name
    for found in pkgutil.walk_packages(fastpoly.__path__, "fastpoly.")
    if not found.name.endswith("__main__")
]


def documented(module):
    """(name, docstring) of a module, its functions, its classes and their members.

    doctest's own finder overlooks what Cython has compiled.
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


def test_readme(tmp_path, monkeypatch):
    """Its Python examples, in order and in one namespace."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 2
    namespace = {}
    for number, block in enumerate(blocks):
        exec(compile(block, f"README.md, example {number + 1}", "exec"), namespace)
