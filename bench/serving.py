"""The time to score one row, against scikit-learn's LogisticRegression.

    python bench/serving.py [--quick] [--turns 50]

A row of 30 entries, sparse or dense, with more and more features; the model has 20 basis vectors,
linear weights and 3 classes. A sparse row must cost by its entries: the goal is at most 0.1 ms for
any number of features. A second table has the ONNX graphs of both models, run by onnxruntime: the
goal is at most 0.05 ms for 100 features. The models take turns, in one thread. The tables of
medians go to stdout and to serving.md of the results; --quick takes few features, writes nothing.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import onnxruntime
import skl2onnx
from experiment import RESULTS, replace, table
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from fastpoly import PolyModel
from fastpoly.onnx import to_onnx

ENTRIES, COMPONENTS, CLASSES = 30, 20, 3
CALLS = 20  # of one model in a turn
GOAL = 0.1  # milliseconds for a sparse row
WIDEST_DENSE = 10**5  # features of a dense row
ONNX_GOAL, ONNX_FEATURES = 0.05, 100  # milliseconds for a dense row of so many features
INTRODUCTION = """\
## One row

Written by `bench/serving.py`: `predict` of one row with 30 entries by a model of 20 basis vectors,
linear weights and 3 classes, medians of the CPU times of calls in turns, one thread. A sparse row
costs by its entries. A dense one costs by its features, for each basis vector, and every call
checks and copies the basis vectors: score dense rows in batches.

"""
ONNX_INTRODUCTION = """
A dense row as an ONNX graph, label and probabilities, run by onnxruntime:

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


def session(graph: Any) -> Callable[[Any], Any]:
    """A function that runs a graph in one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    run = onnxruntime.InferenceSession(
        graph.SerializeToString(), options, providers=["CPUExecutionProvider"]
    ).run
    return lambda X: run(None, {"X": X})


def measure(calls: list[Callable[[Any], Any]], X: Any, turns: int) -> list[float]:
    """Medians of the milliseconds of each function of X.

    They take turns of several calls, because a call of the other one clears the cache.
    """
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(turns):
        for call, spent in zip(calls, times, strict=True):
            for _ in range(CALLS):
                begun = process_time()
                call(X)
                spent.append(1e3 * (process_time() - begun))
    return [median(spent) for spent in times]


def yes(reached: bool) -> str:
    return "yes" if reached else "no"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--turns", type=int, default=50)
    options = parser.parse_args()
    turns = 2 if options.quick else options.turns
    sizes = (10**3, 10**4) if options.quick else (10**3, 10**4, 10**5, 10**6)
    lines, graphs = [], []
    with threadpool_limits(1):
        for kind in ("sparse", "dense"):
            for d in sizes if kind == "sparse" else [d for d in sizes if d <= WIDEST_DENSE]:
                X = row(d) if kind == "sparse" else row(d).toarray()
                ours, theirs = measure([model.predict for model in models(d)], X, turns)
                goal = yes(ours <= GOAL) if kind == "sparse" else ""
                lines.append([kind, f"{d}", f"{ours:.3f}", f"{theirs:.3f}", goal])
        for d in (ENTRIES, ONNX_FEATURES, 10**3):
            X = row(d).toarray().astype(np.float32)
            poly, logistic = models(d)
            zipmap = {id(logistic): {"zipmap": False}}
            both = [to_onnx(poly), skl2onnx.to_onnx(logistic, X, options=zipmap)]
            ours, theirs = measure(list(map(session, both)), X, turns)
            goal = yes(ours <= ONNX_GOAL) if d == ONNX_FEATURES else ""
            graphs.append([f"{d}", f"{ours:.4f}", f"{theirs:.4f}", goal])
    columns = ["features", "PolyModel, ms", "LogisticRegression, ms"]
    text = table(["row", *columns, f"at most {GOAL} ms"], lines)
    text += ONNX_INTRODUCTION + table([*columns, f"at most {ONNX_GOAL} ms"], graphs)
    print(text)
    if not options.quick:
        replace(RESULTS / "serving.md", INTRODUCTION + text)


if __name__ == "__main__":
    main()
