"""How large the package is, and how much of it one fit passes through.

    python -P bench/counts.py [ROOT]    # ROOT: a checkout; by default this one

Lines are counted in ROOT. The fits are those of the installed package, so use the Python of the
environment in which that checkout is installed. Fits are of iris, with default parameters.
"""

import argparse
import ast
import re
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Self

PYTHON, CYTHON, C = (".py",), (".pyx", ".pxd", ".pxi"), (".c", ".h")
OWN_IMPORT = re.compile(r"^\s*(?:from|import) fastpoly\b", re.MULTILINE)
IMPORT = re.compile(r"^\s*(?:from \S+ import|import) ", re.MULTILINE)
NUMBER = r"[-+*/(). 0-9e,]*[0-9][-+*/(). 0-9e,]*"
PLAIN = {0, 1, 2, -1, 0.5}  # not constants of their own: indices, squares, halves
# Capital names at the left margin, entries of a `cdef enum`, and what C has in place of them.
CONSTANTS = (
    (PYTHON + CYTHON, rf"^((?:_?[A-Z][A-Z0-9_]*(?:, )?)+)(?:: \w+)? = ({NUMBER})(?:#.*)?$"),
    (CYTHON, rf"^    ([A-Z][A-Z0-9_]*) = ({NUMBER})(?:#.*)?$"),
    (C, rf"^#define ([A-Z][A-Z0-9_]*) ({NUMBER})(?:/[/*].*)?$"),
    (C, rf"\benum \{{ ?([A-Z][A-Z0-9_]*) = ({NUMBER})"),
)


def sources(root: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(path for path in (root / "fastpoly").rglob("*") if path.suffix in suffixes)


def n_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def n_constants(root: Path, languages: tuple[str, ...]) -> int:
    """Named numbers; 0 to 3 in an enum only name cases."""
    count = 0
    for suffixes, pattern in CONSTANTS:
        for path in sources(root, tuple(set(suffixes) & set(languages))):
            for names, value in re.findall(pattern, path.read_text(), re.MULTILINE):
                case = pattern.startswith("^    ") and value.strip() in ("0", "1", "2", "3")
                count += 0 if case else len(names.split(", "))
    return count


def n_unnamed(root: Path) -> int:
    """Numbers within functions of Python, without defaults of their parameters."""
    count = 0
    for path in sources(root, PYTHON):
        functions = [
            node for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        ]  # fmt: skip
        found = {
            node for function in functions for line in function.body for node in ast.walk(line)
            if isinstance(node, ast.Constant) and type(node.value) in (int, float)
        }  # fmt: skip
        count += sum(node.value not in PLAIN for node in found)
    return count


def longest_function(path: Path) -> tuple[int, str]:
    """Lines and name of the longest function of a file, without docstrings."""
    text = re.sub(r'^ *[ru]?"""[\s\S]*?"""\n', "", path.read_text(), flags=re.MULTILINE)
    lines, best = text.splitlines(), (0, "")
    for first, line in enumerate(lines):
        start = re.match(r"( *)(?:async )?c?p?def (?!class|enum|extern|struct)(.*)\(", line)
        if start is None:
            continue
        margin, last = len(start[1]), first
        for i in range(first + 1, len(lines)):
            indent = len(lines[i]) - len(lines[i].lstrip())
            if lines[i].strip() and indent <= margin and not lines[i].lstrip().startswith(")"):
                break
            last = i if lines[i].strip() else last
        best = max(best, (last - first + 1, f"{path.name}: {start[2].split()[-1]}"))
    return best


class Seen:
    """What the fits of a `with` block call: modules of Python, new objects, passes over shards."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.calls: Counter[str] = Counter()

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event != "call" or module.split(".")[0] != "fastpoly":
            return
        self.modules.add(module)
        # Methods that dataclasses generate have no class. `sum` is `reduce` at 5de635d, where each
        # sum of rows in memory is a method of `RowSums`.
        name, owner = frame.f_code.co_name, type(frame.f_locals.get("self")).__name__
        if name == "__init__":
            self.calls[owner] += 1
        elif name in ("sum", "reduce", "value_grad") or owner == "RowSums":
            self.calls[f"{owner}.pass"] += 1
        elif name == "identity" and module.startswith("fastpoly.rows"):
            self.calls["stat"] += 1


def print_fits() -> None:
    """What default fits of iris pass through, with rows in memory and in shards."""
    from sklearn.datasets import load_iris

    from fastpoly import PolynomialNetworkClassifier, write_shards

    X, y = load_iris(return_X_y=True)
    with tempfile.TemporaryDirectory() as folder:
        shards = write_shards(folder, [(X, y)], rows_per_shard=50, overwrite=True)
        for name, data in {"default fit": (X, y), "default fit of shards": (shards,)}.items():
            with Seen() as seen:
                PolynomialNetworkClassifier(random_state=0).fit(*data)
            kinds = ("Problem", "Objective", "JointObjective", "Rows")
            built = ", ".join(f"{n} {seen.calls[n]}" for n in kinds if seen.calls[n])
            print(f"{name}: {len(seen.modules)} modules of Python; built: {built}")
            # A gradient of rows in memory does not go through `sum`.
            owners = ("ThreadEngine.pass", "Rows.pass", "RowSums.pass")
            passes = next((seen.calls[n] for n in owners if seen.calls[n]), 0)
            print(f"  passes over rows: {passes}; looks at files: {seen.calls['stat']}")
    print(
        f"  modules: {', '.join(sorted(name.removeprefix('fastpoly.') for name in seen.modules))}"
    )
    compiled = [
        name for name, module in sys.modules.items()
        if name.startswith("fastpoly.") and str(getattr(module, "__file__", "")).endswith(".so")
    ]  # fmt: skip
    print(f"compiled modules imported: {len(compiled)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    root = parser.parse_args().root
    files = sources(root, PYTHON + CYTHON)
    for language, suffixes in {"Python": PYTHON, "Cython": CYTHON, "C": C}.items():
        found = sources(root, suffixes)
        print(f"{language}: {sum(map(n_lines, found))} lines in {len(found)} files")
    for kind, some in {"Python": sources(root, PYTHON), "other": sources(root, CYTHON)}.items():
        largest = max(some, key=n_lines)
        print(f"largest {kind} file: {n_lines(largest)} lines, {largest.relative_to(root)}")
    length, name = max(map(longest_function, files))
    print(f"longest function without its docstring: {length} lines, {name}")
    imports = sum(len(IMPORT.findall(path.read_text())) for path in sources(root, PYTHON))
    print(f"import lines: {imports}")
    own = sum(len(OWN_IMPORT.findall(path.read_text())) for path in sources(root, PYTHON))
    print(f"lines of Python that import from fastpoly: {own}")
    python, compiled = n_constants(root, PYTHON), n_constants(root, CYTHON + C)
    print(f"named numeric constants: {python} in Python, {compiled} in compiled files")
    print(f"other numbers in functions of Python: {n_unnamed(root)}")
    print(f"README: {n_lines(root / 'README.md')} lines")
    print_fits()


if __name__ == "__main__":
    main()
