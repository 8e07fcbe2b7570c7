"""Random fits of small data, each with a limit of CPU time.

    python bench/stress.py [--fits 600] [--first 0] [--limit 20]

Six estimators with all penalties, losses and forms, alpha from tiny to large, tau, more features
than rows and the reverse, offsets, default and tight tol; n d is below 1e5. Every fit has a number,
which is its seed. Reports the fits above the goal, those that did not end within the limit, those
that failed, and the counts. One thread.
"""

import argparse
import signal
import warnings
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse
from experiment import Options, options, table, write
from sklearn.exceptions import ConvergenceWarning

import fastpoly

ESTIMATORS = [
    getattr(fastpoly, family + task)
    for family in ("PolynomialNetwork", "FactorizationMachine")
    for task in ("Classifier", "Regressor", "OrdinalRegressor")
]
LOSSES = {
    "Classifier": ("logistic", "smoothed_hinge", "squared_hinge"),
    "Regressor": ("squared", "squared", "huber"),
    "OrdinalRegressor": ("logistic",),
}
DEFAULT_TOL, TIGHT = 0.1, 1e-5
GOAL = 5.0  # seconds of a fit at default tol
SLOW, LATE = f"above {GOAL:g} s", f"above {GOAL:g} s at default tol"


class Late(Exception):
    """The limit is reached."""


def stop(*_: Any) -> None:
    raise Late


def draw(seed: int) -> tuple[Any, Any, Any]:
    """An estimator with its data."""
    rng = np.random.default_rng(seed)

    def choose(*values: Any) -> Any:
        return values[rng.integers(len(values))]

    kind = ESTIMATORS[seed % 6]
    task = kind.__name__.removeprefix("PolynomialNetwork").removeprefix("FactorizationMachine")
    size = 10 ** rng.uniform(1.5, 5)
    d = int(np.clip(10 ** rng.uniform(0.3, 3), 2, size / 6))
    n = max(6, int(size / d))
    if rng.random() < 0.25:  # more features than rows
        n, d = min(n, d), max(n, d)
        n = max(n, 6)
    m = int(rng.integers(2, 19))
    X = rng.standard_normal((n, d))
    if rng.random() < 0.2:
        X *= rng.random((n, d)) < 0.1
    wide = rng.standard_normal((d, m)) / np.sqrt(d)
    O = X @ wide + (X @ rng.standard_normal((d, m)) / np.sqrt(d)) ** 2
    O += choose(0.1, 1.0, 5.0) * rng.standard_normal(O.shape)
    y: Any = O[:, : choose(1, 1, 4)]
    if task != "Regressor":
        y = O.argmax(axis=1) if task == "Classifier" else np.digitize(O[:, 0], np.arange(m - 1) / m)
        y[:2] = 0, 1
    options = {
        "penalty": choose("l1", "l1/l2", "l1/linf"), "loss": choose(*LOSSES[task]),
        "fit_lower": choose("explicit", "explicit", "explicit", "augment", None),
        "standardize": choose(True, True, True, False),
        "tol": choose(DEFAULT_TOL, DEFAULT_TOL, 1e-3, TIGHT), "random_state": 0,
    }  # fmt: skip
    form = choose("default", "alpha", "alpha", "tau")
    if form == "alpha":
        options["alpha"] = 10 ** rng.uniform(-5, 3)
    elif form == "tau":
        options["tau"] = 10 ** rng.uniform(-2, 4)
    if rng.random() < 0.2:
        options["alpha_linear"] = 10 ** rng.uniform(-4, 3)
    if rng.random() < 0.1:
        options["refit"] = choose("output", None)
    X += choose(0.0, 0.0, 0.0, 0.0, 10.0, 1e4)
    if rng.random() < 0.2:
        X = scipy.sparse.csr_array(X)
    return kind(**options), X, y


def measure(seed: int, limit: float) -> tuple[float, str, Any]:
    """CPU seconds, how the fit ended, and the estimator."""
    model, X, y = draw(seed)
    model.set_params(n_threads=1)
    signal.setitimer(signal.ITIMER_PROF, limit)
    begun = process_time()
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model.fit(X, y)
        told = any(issubclass(each.category, ConvergenceWarning) for each in said)
        how = str(model._state.stop) + (" (warned)" if told else "")
    except Late:
        how = "late"
    except ValueError as error:  # data without digits are refused
        how = f"refused: {str(error)[:60]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return process_time() - begun, how, (model, X.shape)


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--fits", type=int, default=600)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--limit", type=float, default=20.0)
    own, rest = parser.parse_known_args(argv)
    with options(__doc__, rest) as where:
        report(where, range(own.first, own.first + (6 if where.quick else own.fits)), own.limit)


def report(where: Options, seeds: range, limit: float) -> None:
    signal.signal(signal.SIGPROF, stop)
    counts = dict.fromkeys(("fits", SLOW, LATE, "late", "refused", "warned"), 0)
    rows = []
    for seed in seeds:
        seconds, how, (model, shape) = measure(seed, limit)
        counts["fits"] += 1
        counts[SLOW] += seconds > GOAL
        counts[LATE] += seconds > GOAL and model.tol == DEFAULT_TOL
        counts["late"] += how == "late"
        counts["refused"] += how.startswith("refused")
        counts["warned"] += "warned" in how
        if seconds > GOAL:
            rows.append([seed, f"{seconds:.1f}", f"{shape[0]} x {shape[1]}", how, f"`{model}`"])
            print(*rows[-1], flush=True)
    text = table(list(counts), [list(counts.values())])
    if rows:
        text += "\n" + table(["seed", "seconds", "size", "end", "estimator"], rows)
    write(where, "stress", counts, text)


if __name__ == "__main__":
    main()
