"""The fits of `fit.py`, in a separate process: one task per line of stdin, one result per line.

It is started with the interpreter of this tree and with that of the last release, so it uses only
names that both have. Seconds include the Design and the states; the clock stops while a state is
evaluated. They are CPU seconds, on several threads elapsed seconds.
"""

import json
import re
import resource
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from time import perf_counter, process_time
from typing import Any

import datasets
import numpy as np

from fastpoly import Design, conditional_gradient, select_basis
from fastpoly.kernels.losses import get_loss

SMALL = {
    "segment": (240, 6, 3),
    "vowel": (240, 5, 4),
    "satimage": (240, 7, 3),
    "letter": (320, 6, 5),
    "ml-100k": (1500, 40, 50),
    "ml-1m": (2000, 40, 60),
}
BUNDLED = ("digits", "iris", "wine", "breast_cancer")  # come with scikit-learn


# ---- data ---------------------------------------------------------------------------------------


def has(name: str) -> bool:
    """Whether the set is available without a download."""
    return name in BUNDLED or datasets.find(name) is not None


@lru_cache(maxsize=1)
def rows(name: str, quick: bool) -> tuple[Any, np.ndarray, int]:
    """Training rows (half of all rows), targets and the number of outputs.

    Classes have a column of ones in front. Ratings have one-hot users and items, sorted by user,
    and the signs of `rating <= c` as targets.
    """
    if name in datasets.RATING_SETS:
        return rating_rows(datasets.stand_in(name, SMALL[name]) if quick else datasets.find(name))
    from sklearn.model_selection import train_test_split

    X, y = bundled(name) if name in BUNDLED else classes(name, quick)
    m = int(y.max()) + 1
    X, _, y, _ = train_test_split(X, y, test_size=0.8 if quick else 0.5, random_state=0)
    return np.hstack([np.ones((len(X), 1)), X]), y, m


def classes(name: str, quick: bool) -> tuple[np.ndarray, np.ndarray]:
    data = datasets.stand_in(name, SMALL[name]) if quick else datasets.find(name)
    return data.X, data.y


def bundled(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A set of scikit-learn: digits in 0..1, the others standardized."""
    import sklearn.datasets

    X, y = getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)
    return (X / 16 if name == "digits" else (X - X.mean(axis=0)) / X.std(axis=0)), y


def rating_rows(data: datasets.Ratings) -> tuple[Any, np.ndarray, int]:
    n = len(data.rating)
    train = np.random.default_rng(1000).permutation(n)[: n // 2]
    train = train[np.argsort(data.user[train], kind="stable")]
    X = datasets.one_hot(data.user[train], data.item[train], data.n_users, data.n_items)
    return X, np.where(data.rating[train, None] <= np.arange(1, 5), 1.0, -1.0), 4


# ---- tasks --------------------------------------------------------------------------------------


def fit(
    data: str,
    *,
    quick: bool = False,
    activation: str = "squared",
    lower: str | None = None,
    n_threads: int = 1,
    target: float | None = None,
    cap: float = np.inf,
    iterations: float = np.inf,
    exact: float | None = None,
    **options: Any,
) -> dict:
    """One fit until it stops, reaches the target objective, the cap or the number of iterations.

    With `exact`, until no vector has a larger violation than that; all signs are tried.
    """
    X, y, m = rows(data, quick)
    signs = data in datasets.RATING_SETS

    def run() -> Iterator[Any]:
        design = Design(X, activation, fit_lower=lower, n_threads=n_threads)
        yield design
        loss = "binary_logistic" if signs else "multiclass_logistic"
        yield from conditional_gradient(
            design, y, loss=loss, n_outputs=m, random_state=0, **options
        )

    clocked = timed(run(), process_time if n_threads == 1 else perf_counter)
    seconds, design = next(clocked)
    history = []
    for seconds, state in clocked:
        entry = {
            "seconds": seconds,
            "objective": state.objective,
            "units": state.n_components,
            "violation": state.violation,
            "stop": state.stop,
        }
        history.append(entry)
        if exact is not None and state.violation <= exact:
            entry["exact"] = true_violation(design, y, m, state, options["penalty"])
            if entry["exact"] <= exact:
                break
        if target is not None and state.objective <= target:
            break
        if seconds > cap or state.n_iter >= iterations:
            break
    return {"history": history, "peak_gb": peak_memory()}


def timed(steps: Iterable[Any], clock: Callable[[], float]) -> Iterator[tuple[float, Any]]:
    """The steps, with the total seconds spent on making them."""
    seconds, begun = 0.0, clock()
    for step in steps:
        seconds += clock() - begun
        yield seconds, step
        begun = clock()


def true_violation(design: Design, y: np.ndarray, m: int, state: Any, penalty: str) -> float:
    """The largest dual norm of all gradient rows, by trying all signs."""
    loss = get_loss("multiclass_logistic")
    _, D = loss.value_grad(loss.encode(y, m), design.outputs(state.H, state.V))
    return float(select_basis(design.gamma(D), penalty, method="exact").value)


def peak_memory() -> float:
    """The largest resident size of this process, in GB, with interpreter, libraries and data."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def logistic_regression(data: str, *, quick: bool = False) -> dict:
    """scikit-learn's logistic regression on all products of two features."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures

    X, y, _ = rows(data, quick)
    X = np.ascontiguousarray(X[:, 1:])
    model = make_pipeline(PolynomialFeatures(2), LogisticRegression(max_iter=10_000))
    begun = process_time()
    model.fit(X, y)
    return {"seconds": process_time() - begun, "iterations": int(model[-1].n_iter_.max())}


def estimator(data: str) -> dict:
    """A classifier with default settings on all rows of the set."""
    from fastpoly import PolynomialNetworkClassifier

    X, y = bundled(data)
    model = PolynomialNetworkClassifier(n_threads=1, random_state=0)
    begun = process_time()
    model.fit(X, y)
    return {"seconds": process_time() - begun}


def passes(quick: bool = False, rounds: int = 9) -> list[dict]:
    """Seconds of the fused pass on one thread and on two; for dense rows, also of its products."""
    from kernel_cases import joint
    from kernels import rounds_of

    found = []
    for case in joint.cases(quick):
        rival = case.against.get("its 5 products alone")
        if rival is None and case.name == "joint pass":
            continue  # the same shape occurs again with the products alone
        sizes = dict(re.findall(r"(\w)=(\d+)", case.shape))
        runs = [lambda case=case: case.run(1), *([rival] if rival else [])]
        one = rounds_of(runs, rounds, 1)
        both = rounds_of([lambda t=t, case=case: case.run(t) for t in (1, 2)], rounds, 1)
        found.append(
            {
                "shape": case.shape,
                "size": int(sizes["n"]) * int(sizes["k"]),
                "seconds": float(np.median(one[:, 0])),
                "products": float(np.median(one[:, 1])) if rival else None,
                "ratio": float(np.median(one[:, 0] / one[:, 1])) if rival else None,
                "threads": np.median(both, axis=0).tolist(),
                "gain": float(np.median(both[:, 0] / both[:, 1])),
            }
        )
    return found


TASKS = {f.__name__: f for f in (has, fit, logistic_regression, estimator, passes)}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # output of libraries is not a result
    for line in sys.stdin:
        task = json.loads(line)
        answer = TASKS[task.pop("task")](**task)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
