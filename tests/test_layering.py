"""Each module imports only from the layers below its own, and the core knows no scikit-learn."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import fastpoly

ROOT = Path(fastpoly.__file__).parent

# From the bottom up. A module may import from lower layers and, without cycles, from its own.
LAYERS = (
    ("kernels",),
    (
        "problem",
        "state",
        "draws",
        "metrics",
        "interactions",
        "contributions",
        "decoding",
        "tables",
        "storage",
    ),
    ("rows",),
    ("objective",),
    ("selection", "refit"),
    ("algorithm", "path", "strengths", "posterior", "priors", "model", "joined", "recommend"),
    ("estimators", "plotting", "dask", "onnx"),
    ("demo",),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
CORE = [name for layer in LAYERS[:6] for name in layer]


def unit(module):
    """fastpoly.refit -> refit, fastpoly.estimators.base -> estimators."""
    return module.split(".")[1] if "." in module else ""


def modules():
    """Every Python module of the package: its dotted name and its file."""
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def imports(path, name):
    """Dotted names of all imports of a module, except those for type checking."""
    tree = ast.parse(path.read_text())
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    ignored = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(above + ([base] if base else []))
            # `from fastpoly import refit` imports a module, `from fastpoly import Design` the root
            yield from (f"{base}.{a.name}" if base == "fastpoly" else base for a in node.names)


def own_imports():
    """(importing module, unit it imports from) for imports within the package."""
    for name, path in modules():
        for target in imports(path, name):
            if target.split(".")[0] == "fastpoly":
                yield name, unit(target)


def test_every_module_has_a_layer():
    found = {unit(name) for name, _ in modules()} - {""}
    assert found <= set(RANK), f"give {found - set(RANK)} a layer in LAYERS"


def test_no_module_imports_from_above():
    wrong = [
        f"{name} imports {target}"
        for name, target in own_imports()
        # A name of the package itself, which imports the core: for the last layer only.
        if unit(name) and RANK.get(target, len(LAYERS) - 1) > RANK[unit(name)]
    ]
    assert not wrong


def test_no_cycles():
    graph = {name: set() for name in RANK}
    for name, target in own_imports():
        if unit(name) and target in graph and target != unit(name):
            graph[unit(name)].add(target)
    assert list(TopologicalSorter(graph).static_order())


def test_no_property_has_a_lock():
    """The lock of a cached_property of Python 3.11 may be locked for ever in a forked child."""
    assert not [name for name, path in modules() if "import cached_property" in path.read_text()]


def test_kernels_import_only_kernels():
    sources = Path(__file__).parent.parent / "fastpoly" / "kernels"
    files = [p for p in sources.glob("*.p[xy]*") if p.suffix in {".pyx", ".pxd", ".pxi", ".py"}]
    pattern = re.compile(r"^\s*(?:from|c?import)\s+(fastpoly[\w.]*)", re.MULTILINE)
    targets = {target for path in files for target in pattern.findall(path.read_text())}
    assert targets
    assert all(target.startswith("fastpoly.kernels") for target in targets), targets


def test_only_the_top_names_scikit_learn_and_matplotlib():
    wrong = [
        f"{name} imports {target}"
        for name, path in modules()
        for target in imports(path, name)
        if target.split(".")[0] in {"sklearn", "matplotlib"}
        and (unit(name) in CORE or not unit(name))
        and name != "fastpoly.rows.ingest"  # reads libsvm files
    ]
    assert not wrong


def test_only_two_modules_name_distributed_and_pyarrow():
    found = {
        name
        for name, path in modules()
        for target in imports(path, name)
        if target.split(".")[0] in {"dask", "distributed", "pyarrow"}
    }
    assert found == {"fastpoly.dask", "fastpoly.rows.ingest"}


def test_core_loads_neither_scikit_learn_nor_matplotlib():
    """Every core module, compiled ones included, in a fresh interpreter."""
    code = f"""
import importlib, pkgutil, sys
import fastpoly.kernels
core = {CORE}
for package in (fastpoly, fastpoly.kernels):  # walk_packages would import the estimators
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.name.split(".")[1] in core:
            importlib.import_module(found.name)
heavy = {{"sklearn", "matplotlib", "pandas", "distributed", "pyarrow", "narwhals"}}
heavy &= {{name.split(".")[0] for name in sys.modules}}
assert "fastpoly.kernels.losses" in sys.modules
assert not heavy, heavy
"""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", code], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
