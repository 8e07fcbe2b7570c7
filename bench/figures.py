"""The figures of README.md and docs/large.md: `python bench/figures.py` writes their tables.

They come from the committed results. A test compares the tables in these pages with the ones made
here, so that the figures always match the results.
"""

import json
from pathlib import Path
from statistics import mean
from typing import Any

import experiment
import multiclass
import peers
import report
import search

ROOT = Path(__file__).parent.parent
README, LARGE = ROOT / "README.md", ROOT / "docs" / "large.md"
PASSES = "value and gradient", "mat-vecs"  # what most of a fit consists of


def read(name: str) -> Any:
    return json.loads((experiment.RESULTS / f"{name}.json").read_text())


def readme() -> list[list[str]]:
    """The table of README.md, its head first."""
    head = ["measured, on one thread", "fastpoly", "others"]
    return [head, ranks(), fit(), prediction(), ratings(), small()]


def ranks() -> list[str]:
    ranks = read("tables")["ranks"]
    ours = ranks.pop("fastpoly")
    others = ", ".join(f"{name} {rank:.2f}" for name, rank in ranks.items())
    what = "mean rank by loss, nothing tuned, on real tables that no default was chosen on"
    return [what, f"{ours:.2f}", others]


def marked(what: str, name: str) -> str:
    """With a dagger if the results were measured in time for the release, and not again since."""
    old = report.OLD in (experiment.RESULTS / f"{name}.md").read_text()
    return what + report.DAGGER * old


def fit() -> list[str]:
    lines = read("fit")["lines"]
    line = next(e for e in lines if e["what"] == "digits to 1 %" and "products" in e["against"])
    theirs = f"logistic regression on all products {line['old']:.2f} s"
    what = marked("digits, 64 features: fit to within 1 % of the optimum", "fit")
    return [what, f"{line['new']:.2f} s", theirs]


def prediction() -> list[str]:
    found = read("peers")["letter"]
    ours, svc = found[peers.NETWORK], found["quadratic SVC"]
    classes = read("multiclass")["letter"]
    hits, theirs = (
        mean(e["test"] for e in classes[line]) for line in (multiclass.BEST, "quadratic SVC")
    )
    return [
        marked("letter, 26 classes: accuracy, and time to predict the test part", "peers"),
        f"{hits:.1f} %, {1e3 * ours['predict']:.0f} ms",
        f"quadratic SVC {theirs:.1f} %, {1e3 * svc['predict']:.0f} ms",
    ]


def ratings() -> list[str]:
    found = read("posterior")

    def value(line: str) -> str:
        runs = found[f"ml-1m, {line}"]
        error, seconds = (mean(run[name] for run in runs) for name in ("rmse", "fit"))
        return f"{error:.3f} in {seconds:.0f} s"

    others = ("cmfrec ALS, rank 20", "myFM regression, rank 20")
    return [
        marked("MovieLens 1M, ordinal `PosteriorAverage`: RMSE and time of a fit", "posterior"),
        value("PosteriorAverage, ordinal"),
        "; ".join(f"{line}: {value(line)}" for line in others),
    ]


def small() -> list[str]:
    found = read("search")["wine"]
    ours, theirs = (f"{mean(found[m]['loss']):.3f}" for m in (search.OURS, search.RIVAL))
    return [
        marked("wine, 119 rows: log-loss of `PathSearchCV`", "search"),
        ours,
        f"`LogisticRegressionCV` on all products {theirs}",
    ]


def large() -> list[list[str]]:
    """The table of docs/large.md, its head first."""
    found = read("scale")
    rows = [["measured on two cores", "figure"]]
    memory = found["against7"]
    ratios = [memory[f"{name}, 2 threads, ratio of seconds"] for name in PASSES]
    rows.append(
        ["1e7 rows in shards against memory, time per pass", " and ".join(map(times, ratios))]
    )
    rows.append(["1e7 rows, page cache dropped before the pass", times(found["dropped7"]["ratio"])])
    speeds = found["dask7"]["fit: speed"]
    rows.append(["1e7 rows, speed of two Dask workers against two threads", times(speeds)])
    rows.append(["an empty pass on Dask, median", f"{found['latency']['p50 ms']:.0f} ms"])
    rate = found["write7"]["rows per second of a core"] / 1e6
    rows.append(["`write_shards` from parquet, per second and core", f"{rate:.0f} million rows"])
    for name, what in (("planted7", "1e7"), ("planted8", "1e8")):
        if name in found:
            fit = found[name]
            minutes = f"{fit['seconds'] / 60:.1f} minutes, {fit['GB']:.1f} GB"
            rows.append([f"a fit of {what} ratings, 4 outputs, 10 basis vectors", minutes])
            excess = f"{100 * (fit['log-loss, ratio to that'] - 1):.1f} %"
            rows.append(["its log-loss on other rows, above that of the true model", excess])
    return rows


def times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def with_table(text: str, rows: list[list[str]]) -> str:
    """The page with the table in place of the one under the same head."""
    table = [f"| {' | '.join(cells)} |" for cells in rows]
    table.insert(1, "|" + " --- |" * len(rows[0]))
    lines = text.splitlines()
    first = lines.index(table[0])
    last = next(i for i in range(first, len(lines)) if not lines[i].startswith("|"))
    return "\n".join([*lines[:first], *table, *lines[last:]]) + "\n"


PAGES = {README: readme, LARGE: large}

if __name__ == "__main__":
    for page, rows in PAGES.items():
        experiment.replace(page, with_table(page.read_text(), rows()))
        print(f"written: {page}")
