"""How large the package is, and how much of it one fit passes through.

    python -P bench/counts.py [ROOT]    # ROOT: a checkout; by default this one

Lines are counted in ROOT. The fit is that of the installed package, so use the Python of the
environment in which that checkout is installed.
"""

import argparse
import re
import sys
from pathlib import Path

PYTHON, CYTHON, C = (".py",), (".pyx", ".pxd", ".pxi"), (".c", ".h")
NUMBER = r"[-+*/(). 0-9e,]+"
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


def n_constants(root: Path) -> int:
    """Named numbers; 0 to 3 in an enum only name cases."""
    count = 0
    for suffixes, pattern in CONSTANTS:
        for path in sources(root, suffixes):
            for names, value in re.findall(pattern, path.read_text(), re.MULTILINE):
                case = pattern.startswith("^    ") and value.strip() in ("0", "1", "2", "3")
                count += 0 if case else len(names.split(", "))
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


def passed_in_a_fit() -> tuple[set[str], set[str]]:
    """Python modules whose functions a fit calls, and compiled modules that it has imported."""
    from sklearn.datasets import load_iris

    from fastpoly import PolynomialNetworkClassifier

    X, y = load_iris(return_X_y=True)
    called = set()
    sys.setprofile(lambda frame, event, _: called.add(frame.f_globals.get("__name__", "")))
    PolynomialNetworkClassifier(random_state=0).fit(X, y)
    sys.setprofile(None)
    compiled = {
        name for name, module in sys.modules.items()
        if name.startswith("fastpoly.") and str(getattr(module, "__file__", "")).endswith(".so")
    }  # fmt: skip
    return {name for name in called if name.split(".")[0] == "fastpoly"}, compiled


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    root = parser.parse_args().root
    files = sources(root, PYTHON + CYTHON)
    for language, suffixes in {"Python": PYTHON, "Cython": CYTHON, "C": C}.items():
        found = sources(root, suffixes)
        print(f"{language}: {sum(map(n_lines, found))} lines in {len(found)} files")
    largest = max(files, key=n_lines)
    print(f"largest file: {n_lines(largest)} lines, {largest.relative_to(root)}")
    length, name = max(map(longest_function, files))
    print(f"longest function without its docstring: {length} lines, {name}")
    print(f"named numeric constants: {n_constants(root)}")
    print(f"README: {n_lines(root / 'README.md')} lines")
    called, compiled = passed_in_a_fit()
    print(f"modules of a default fit: {len(called)} of Python, {len(compiled)} compiled")


if __name__ == "__main__":
    main()
