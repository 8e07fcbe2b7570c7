"""The figures of README.md, from the committed results: `python bench/figures.py` writes the table.

A test compares the table in README.md with this one, so that its figures always match the results.
"""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import experiment
import multiclass
import peers
import recsys
import search

README = Path(__file__).parent.parent / "README.md"
HEAD = ["measured, on one thread", "fastpoly", "others"]
ALIGN = "| --- | --- | --- |"


def read(name: str) -> Any:
    return json.loads((experiment.RESULTS / f"{name}.json").read_text())


def rows() -> list[list[str]]:
    return [ranks(), fit(), prediction(), ratings(), small()]


def ranks() -> list[str]:
    found = read("defaults")["ranks"]["judged on"]["loss, without the SVM"]
    ours = found.pop("fastpoly")
    others = ", ".join(f"{name} {rank:.2f}" for name, rank in found.items())
    what = "mean rank by loss, nothing tuned, on tables that no default was chosen on"
    return [what, f"{ours:.2f}", others]


def fit() -> list[str]:
    lines = read("fit")["lines"]
    line = next(e for e in lines if e["what"] == "digits to 1 %" and "products" in e["against"])
    theirs = f"logistic regression on all products {line['old']:.2f} s"
    return ["digits, 64 features: fit to within 1 % of the optimum", f"{line['new']:.2f} s", theirs]


def prediction() -> list[str]:
    found = read("peers")["letter"]
    ours, svc = found[peers.NETWORK], found["quadratic SVC"]
    classes = read("multiclass")["letter"]
    hits, theirs = (
        mean(e["test"] for e in classes[line]) for line in (multiclass.BEST, "quadratic SVC")
    )
    return [
        "letter, 26 classes: accuracy, and time to predict the test part",
        f"{hits:.1f} %, {1e3 * ours['predict']:.0f} ms",
        f"quadratic SVC {theirs:.1f} %, {1e3 * svc['predict']:.0f} ms",
    ]


def ratings() -> list[str]:
    found = read("recsys")["ml-1m"]

    def value(line: str) -> str:
        entries = found[line]["chosen"]["rmse"]
        error, seconds = (mean(e[key] for e in entries) for key in ("test", "seconds"))
        return f"{error:.3f} in {seconds:.0f} s"

    others = ("cmfrec ALS", "myFM regression")
    return [
        "MovieLens 1M, ordinal: RMSE and time of a fit",
        value(recsys.SEARCHED),
        ", ".join(f"{line} {value(line)}" for line in others),
    ]


def small() -> list[str]:
    found = read("search")["wine"]
    ours, theirs = (f"{mean(found[m]['loss']):.3f}" for m in (search.OURS, search.RIVAL))
    return [
        "wine, 119 rows: log-loss of `PathSearchCV`",
        ours,
        f"`LogisticRegressionCV` on all products {theirs}",
    ]


def table() -> str:
    lines = [f"| {' | '.join(cells)} |" for cells in [HEAD, *rows()]]
    return "\n".join([lines[0], ALIGN, *lines[1:]])


def with_table(text: str) -> str:
    """The page with this table in place of the one with the same header."""
    lines = text.splitlines()
    first = lines.index(f"| {' | '.join(HEAD)} |")
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    return "\n".join([*lines[:first], *table().splitlines(), *lines[last:]]) + "\n"


if __name__ == "__main__":
    experiment.replace(README, with_table(README.read_text()))
    print(table())
