"""The time to score one row, against scikit-learn's LogisticRegression.

    python bench/serving.py [--quick] [--turns 50]

A row of 30 entries, sparse or dense, with more and more features; the model has 20 basis vectors,
linear weights and 3 classes. A sparse row must cost by its entries: the goal is at most 0.2 ms for
any number of features. The models take turns, in one thread. The table of medians goes to stdout
and to serving.md of the results; --quick takes few features and writes nothing.
"""

import argparse
from statistics import median
from time import perf_counter

import numpy as np
from experiment import RESULTS, replace, table
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from fastpoly import PolyModel

ENTRIES, COMPONENTS, CLASSES = 30, 20, 3
CALLS = 20  # of one model in a turn
GOAL = 0.2  # milliseconds for a sparse row
WIDEST_DENSE = 10**5  # features of a dense row
INTRODUCTION = """\
## One row

Written by `bench/serving.py`: `predict` of one row with 30 entries by a model of 20 basis vectors,
linear weights and 3 classes, medians of calls in turns, one thread. A sparse row costs by its
entries. A dense one costs by its features, for each basis vector, and every call checks and copies
the basis vectors: score dense rows in batches.

"""


def models(d: int) -> tuple[PolyModel, LogisticRegression]:
    """A model of each kind with random weights."""
    rng = np.random.default_rng(0)
    H, V = rng.standard_normal((COMPONENTS, d)), rng.standard_normal((COMPONENTS, CLASSES))
    linear, intercept = rng.standard_normal((CLASSES, d)), np.zeros(CLASSES)
    poly = PolyModel(H, V, intercept, linear, activation="anova", task="classification")
    logistic = LogisticRegression()
    logistic.coef_, logistic.intercept_, logistic.classes_ = linear, intercept, np.arange(CLASSES)
    logistic.n_features_in_ = d
    return poly, logistic


def row(d: int) -> csr_array:
    rng = np.random.default_rng(1)
    columns = np.sort(rng.choice(d, ENTRIES, replace=False))
    return csr_array((np.ones(ENTRIES), columns, [0, ENTRIES]), shape=(1, d))


def measure(d: int, dense: bool, turns: int) -> list[float]:
    """Medians of the milliseconds of `predict`: PolyModel, LogisticRegression.

    They take turns of several calls, because a call of the other one clears the cache.
    """
    X, found = row(d), models(d)
    X = X.toarray() if dense else X
    times: list[list[float]] = [[] for _ in found]
    for _ in range(turns):
        for model, spent in zip(found, times, strict=True):
            for _ in range(CALLS):
                begun = perf_counter()
                model.predict(X)
                spent.append(1e3 * (perf_counter() - begun))
    return [median(spent) for spent in times]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turns", type=int, default=50)
    options = parser.parse_args()
    lines = []
    with threadpool_limits(1):
        for dense in (False, True):
            for d in (10**3, 10**4) if options.quick else (10**3, 10**4, 10**5, 10**6):
                if dense and d > WIDEST_DENSE:
                    continue
                ours, theirs = measure(d, dense, 2 if options.quick else options.turns)
                goal = "" if dense else "yes" if ours <= GOAL else "no"
                kind = "dense" if dense else "sparse"
                lines.append([kind, f"{d}", f"{ours:.3f}", f"{theirs:.3f}", goal])
    header = ["row", "features", "PolyModel, ms", "LogisticRegression, ms", f"at most {GOAL} ms"]
    text = table(header, lines)
    print(text)
    if not options.quick:
        replace(RESULTS / "serving.md", INTRODUCTION + text)


if __name__ == "__main__":
    main()
