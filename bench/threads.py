"""The default number of threads against one, with 0, 1 and 2 other busy processes.

    python bench/threads.py [--quick] [--repetitions 5] [--others 0,1,2] [--only fit]

Whole fits and single passes with n_threads=None and n_threads=1 are interleaved. A turn repeats a
pass for SPAN seconds: on busy cores most passes run undisturbed and a few wait for a processor, so
a single pass says nothing. The speed is the median, over pairs of turns, of the time with one
thread over the time by default. The goal is at least 0.9 everywhere, and 1.5 for passes above 5 ms
without other processes, on an idle machine with two processors. The table goes to stdout and to
threads.md of the results. --quick uses tiny data, --only runs some cases; neither writes anything.
"""

import argparse
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from statistics import median
from time import perf_counter
from typing import NamedTuple

import numpy as np
from experiment import RESULTS, replace, table
from scipy.sparse import csr_array
from sklearn.datasets import load_digits, make_classification
from sklearn.preprocessing import StandardScaler

from fastpoly import FactorizationMachineRegressor, PolynomialNetworkClassifier
from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.gamma import CsrGamma, DenseGamma
from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.losses import get_loss
from fastpoly.kernels.matrix import Matrix, as_matrix
from fastpoly.kernels.runtime import effective_n_threads

SPAN = 0.3  # seconds of one turn of passes
LEAST, LEAST_IDLE, LONG = 0.9, 1.5, 5e-3  # wanted speeds; the second for passes above LONG seconds
BUSY = """
import os
parent = os.getppid()
while os.getppid() == parent:  # it ends with us
    for _ in range(1_000_000):
        pass
"""
Call = Callable[[], object]


class Case(NamedTuple):
    """Something to time: its name, and a function that makes it for a number of threads."""

    name: str
    whole_fit: bool
    make: Callable[[int | None], Call]


@contextmanager
def busy(n: int) -> Iterator[None]:
    """Other processes that never sleep."""
    others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(n)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


# ---- what is timed ------------------------------------------------------------------------------


def classes(n: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = make_classification(n, 40, n_informative=15, n_classes=3, random_state=0)
    return StandardScaler().fit_transform(X), y


def ratings(n: int, users: int, items: int) -> tuple[csr_array, np.ndarray]:
    """One-hot rows of users and items, as many of each as in MovieLens, and their ratings."""
    rng = np.random.default_rng(0)
    user, item = np.sort(rng.integers(0, users, n)), rng.integers(0, items, n)
    columns = np.column_stack([user, users + item]).ravel()
    X = csr_array((np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)), shape=(n, users + items))
    U, V = rng.standard_normal((users, 4)), rng.standard_normal((items, 4))
    return X, (U[user] * V[item]).sum(axis=1) + rng.standard_normal(n)


def fit(model: type, X: object, y: np.ndarray, n_threads: int | None) -> Call:
    estimator = model(n_components=10, random_state=0, n_threads=n_threads)
    return partial(estimator.fit, X, y)


def joint_pass(X: Matrix, activation: str, m: int, k: int, n_threads: int | None) -> Call:
    rng = np.random.default_rng(0)
    Y = rng.choice([-1.0, 1.0], (X.n, m))
    objective = JointObjective(X, get_loss("binary_logistic"), Y, m, activation=activation,
                               linear=True, n_threads=n_threads)  # fmt: skip
    x = 0.1 * rng.standard_normal(objective.n_parameters(k))
    return partial(objective.value_grad_packed, x, k, np.empty_like(x))


def mat_vecs(kind: type, X: Matrix, m: int, n_threads: int | None) -> Call:
    gamma = kind(X, np.random.default_rng(0).standard_normal((X.n, m)), True, n_threads)
    return partial(gamma.matvecs, np.ones((X.d, m)))


def forming(X: Matrix, m: int, n_threads: int | None) -> Call:
    D = np.random.default_rng(0).standard_normal((X.n, m))
    return partial(explicit_gamma, X, D, n_threads=n_threads)


def cases(quick: bool) -> Iterator[Case]:
    network = PolynomialNetworkClassifier
    for n in (200, 400) if quick else (1_000, 10_000, 50_000):
        X, y = classes(n)
        yield Case(f"fit, {n:,} x 40, 3 classes", True, partial(fit, network, X, y))
    X, y = load_digits(return_X_y=True)
    few = slice(200 if quick else None)
    yield Case("fit, digits", True, partial(fit, network, X[few] / 16, y[few]))
    n, users, items = (500, 20, 30) if quick else (80_000, 943, 1_682)
    pairs, stars = ratings(n, users, items)
    name = f"fit, {n:,} ratings, one-hot pairs"
    yield Case(name, True, partial(fit, FactorizationMachineRegressor, pairs, stars))
    pairs = as_matrix(pairs)
    for n in (200, 400) if quick else (10_000, 50_000):
        X = as_matrix(classes(n)[0])
        for k in (10, 50):
            make = partial(joint_pass, X, "squared", 3, k)
            yield Case(f"joint pass, {n:,} x 40, k = {k}", False, make)
        yield Case(f"explicit Gamma, {n:,} x 40", False, partial(forming, X, 3))
        yield Case(f"mat-vecs, {n:,} x 40, m = 10", False, partial(mat_vecs, DenseGamma, X, 10))
    make = partial(joint_pass, pairs, "anova", 4, 30)
    yield Case(f"joint pass, {pairs.n:,} pairs, k = 30", False, make)
    make = partial(mat_vecs, CsrGamma, pairs, 4)
    yield Case(f"mat-vecs, {pairs.n:,} pairs, m = 4", False, make)


# ---- timing -------------------------------------------------------------------------------------


def seconds(call: Call, span: float) -> float:
    """Seconds of one call, averaged over the calls that fill `span` seconds; at least one."""
    began, calls = perf_counter(), 0
    while calls == 0 or perf_counter() - began < span:
        call()
        calls += 1
    return (perf_counter() - began) / calls


def compare(case: Case, repetitions: int, span: float) -> tuple[float, float, float]:
    """Seconds with one thread, seconds by default, and how many times faster the default is."""
    default, one = case.make(None), case.make(1)
    span = 0.0 if case.whole_fit else span
    turns = [(seconds(one, span), seconds(default, span)) for _ in range(repetitions)]
    ratios = [alone / together for alone, together in turns]
    return *(median(column) for column in zip(*turns, strict=True)), median(ratios)


def wanted(case: Case, others: int, alone: float) -> float:
    return LEAST_IDLE if not (others or case.whole_fit) and alone > LONG else LEAST


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="tiny data, for a trial")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--others", default="0,1,2", help="numbers of busy processes")
    parser.add_argument("--only", default="", help="part of the names of those to be timed")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    repetitions, span = (1, 0.01) if options.quick else (options.repetitions, SPAN)
    load = os.getloadavg()[0]
    rows = []
    for case in (case for case in cases(options.quick) if options.only in case.name):
        for others in map(int, options.others.split(",")):
            with busy(others):
                alone, together, speed = compare(case, repetitions, span)
            aim = wanted(case, others, alone)
            rows.append([case.name, others, f"{1e3 * alone:.1f}", f"{1e3 * together:.1f}",
                         f"{speed:.2f}", f"{aim}" if speed >= aim else f"**{aim}**"])  # fmt: skip
            print(*rows[-1], sep="\t", flush=True)
    header = ["what", "busy processes", "one thread, ms", "default, ms", "speed", "wanted"]
    text = f"""## The default number of threads against one

Written by `bench/threads.py`: {effective_n_threads()} threads by default on {os.cpu_count()}
processors, median of {repetitions} pairs of turns. The load average before the run was {load:.1f}:
above 0.5, there were other processes even in the rows with "0 busy processes". Bold: not reached.

{table(header, rows)}
"""
    if not options.quick and not options.only:
        replace(RESULTS / "threads.md", text)
    print(text)


if __name__ == "__main__":
    main()
