"""Write docs/api.md from the docstrings: `python -P docs/build_api.py` after changing one.

The tests compare the page with what this makes of the installed package.
"""

import inspect
import re
from pathlib import Path
from typing import Any

import fastpoly
from fastpoly import metrics, path, plotting, refit
from fastpoly.rows import contract, reading, shard_design
from fastpoly.storage import state_file as checkpoint

PAGE = Path(__file__).with_name("api.md")

PARTS = {
    "Estimators": [
        fastpoly.PolynomialNetworkClassifier,
        fastpoly.PolynomialNetworkRegressor,
        fastpoly.PolynomialNetworkOrdinalRegressor,
        fastpoly.FactorizationMachineClassifier,
        fastpoly.FactorizationMachineRegressor,
        fastpoly.FactorizationMachineOrdinalRegressor,
        fastpoly.PathSearchCV,
    ],
    "Model": [fastpoly.PolyModel],
    "Data larger than memory": [
        fastpoly.Shards,
        fastpoly.write_shards,
        reading.read_csv_batches,
        reading.read_libsvm_batches,
        shard_design.ShardDesign,
        contract.Statistics,
    ],
    "Displays": [
        plotting.PathDisplay,
        plotting.ConvergenceDisplay,
        plotting.InteractionDisplay,
    ],
    "Metrics": [metrics.rmse, metrics.ndcg],
    "Functional core": [
        fastpoly.Design,
        fastpoly.conditional_gradient,
        fastpoly.State,
        fastpoly.select_basis,
        fastpoly.alpha_max,
        path.alpha_grid,
        path.regularization_path,
        refit.refit_output,
        checkpoint.save_state,
        checkpoint.load_state,
        checkpoint.fingerprint,
    ],
}


def page() -> str:
    """The whole page as Markdown."""
    lines = ["# API", "", "Made from the docstrings by `docs/build_api.py`.", ""]
    for part, things in PARTS.items():
        names = ", ".join(f"[{thing.__name__}](#{thing.__name__.lower()})" for thing in things)
        lines.append(f"- {part}: {names}")
    for part, things in PARTS.items():
        lines += ["", f"## {part}"]
        for thing in things:
            lines += entry(thing)
    return "\n".join(lines) + "\n"


def entry(thing: Any) -> list[str]:
    """A function, or a class with the methods that fastpoly defines."""
    module = "fastpoly" if thing.__name__ in fastpoly.__all__ else thing.__module__
    lines = ["", f"### {thing.__name__}", "", f"`{module}.{thing.__name__}{signature(thing)}`"]
    lines += ["", *markdown(thing.__doc__)]
    if inspect.isclass(thing):
        for name, method in sorted(methods(thing)):
            lines += ["", f"#### {thing.__name__}.{name}", "", f"`{name}{signature(method)}`"]
            lines += ["", *markdown(method.__doc__)]
    return lines


def methods(cls: type) -> list[tuple[str, Any]]:
    """Public methods with a docstring; those that scikit-learn gives to every estimator aside."""
    found = []
    for name in dir(cls):
        if name.startswith("_"):
            continue
        owner = next(base for base in cls.__mro__ if name in vars(base))
        value = vars(owner)[name]
        value = getattr(value, "fn", getattr(value, "__func__", value))  # available_if, classmethod
        ours = owner.__module__.startswith("fastpoly")
        if ours and inspect.isfunction(value) and value.__doc__:
            found.append((name, value))
    return found


def signature(thing: Any) -> str:
    """Names and defaults; the docstring tells the types."""
    given = inspect.signature(thing)
    parameters = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in given.parameters.values()
        if p.name not in ("self", "cls") and "factory" not in repr(p.default)
    ]
    return str(inspect.Signature(parameters))


def markdown(docstring: str) -> list[str]:
    """A numpydoc docstring: sections in bold, their entries as lists, examples as code."""
    lines, section = [], ""
    text = inspect.cleandoc(docstring).split("\n")
    for number, line in enumerate(text):
        if number + 1 < len(text) and re.fullmatch(r"-{3,}", text[number + 1]) and line:
            section = line
            lines += [f"**{line}**", ""]
        elif re.fullmatch(r"-{3,}", line):
            continue
        elif section in ("", "Notes", "Examples", "References") or not line:
            lines.append(line)
        elif line.startswith("    "):
            lines.append("  " + line.strip())
        else:
            name, colon, kind = line.partition(" : ")
            lines.append(f"- `{name}`{': ' if colon else ''}{kind}")
    return fenced(lines)


def fenced(lines: list[str]) -> list[str]:
    """The lines with fences around examples (from >>> to an empty line) and tables of text."""
    result, inside = [], ""
    for line in [*lines, ""]:
        if inside and not line:
            result.append("```")
            inside = ""
        if not inside and line.startswith(">>>"):
            inside = "pycon"
            result.append("```pycon")
        elif not inside and (line.startswith("    ") or line.startswith("===")):
            inside = "text"
            result.append("```text")
        result.append(line)
    return result[:-1]


if __name__ == "__main__":
    PAGE.write_text(page())
