"""Random fits of small data, each with a limit of CPU time.

    python bench/stress.py [--fits 600] [--first 0] [--limit 20] [--slow 5]

Six estimators with all penalties, losses and forms, alpha from tiny to large, tau, more features
than rows and the reverse, offsets, default and tight tol; n d is below 1e5. Every fit has a number,
which is its seed. Prints the fits above the goal, those that did not end within the limit, those
that failed, and the counts. One thread.
"""

import argparse
import signal
import warnings
from time import process_time
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

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
TIGHT = 1e-5


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
        "standardize": choose(True, True, True, False), "tol": choose(0.1, 0.1, 1e-3, TIGHT),
        "random_state": 0,
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
        how += f" {model._state.memory.spent // 1000}"
    except Late:
        how = "late"
    except ValueError as error:  # data without digits are refused
        how = f"refused: {str(error)[:60]}"
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return process_time() - begun, how, (model, X.shape)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fits", type=int, default=600)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--slow", type=float, default=5.0)
    given = parser.parse_args()
    signal.signal(signal.SIGPROF, stop)
    threadpool_limits(1)
    counts = dict.fromkeys(("fits", "slow", "slow at default tol", "late", "refused"), 0)
    stops: dict[str, int] = {}
    for seed in range(given.first, given.first + given.fits):
        seconds, how, (model, shape) = measure(seed, given.limit)
        slow = seconds > given.slow
        counts["fits"] += 1
        counts["slow"] += slow
        counts["slow at default tol"] += slow and model.tol == 0.1
        counts["late"] += how == "late"
        counts["refused"] += how.startswith("refused")
        stops[how] = stops.get(how, 0) + 1
        if slow:
            print(f"{seed}: {seconds:.1f} s, {shape[0]} x {shape[1]}, {how}, {model}", flush=True)
    print(counts)
    print(stops)


if __name__ == "__main__":
    main()
