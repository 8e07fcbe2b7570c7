"""The fits of the multi-class experiments: a task (flat dict) in, accuracies and costs out.

A task names data, seed, method and its settings, one value of each: `alpha` or `C` is chosen later,
on the validation part, by `best`. A fit that grows gives its accuracies along the way.
"""

from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np
from experiment import Result, Split, Task, load, split
from projected_gradient import descend
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC

from fastpoly import Design, PolyModel, conditional_gradient
from fastpoly.problem import Problem
from fastpoly.refit import refit_output

# Accuracies are looked at for these numbers of basis vectors, and k is chosen among them.
STAGES = [*range(1, 11), 12, *range(15, 50, 5), *range(50, 151, 10)]
TOL = 0.2  # vectors that would gain less than this share of alpha are not worth their time here
STEPS = {"letter": 10}  # of a refit at most, where it is slow: the next one goes on from there
QUADRATIC = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0}  # (x'z + 1)^2


class Stage(NamedTuple):
    """A model on the way: units, parameters, seconds of fitting so far, labels of given rows."""

    units: int
    parameters: int
    seconds: float
    predict: Callable[[np.ndarray], np.ndarray]


def fit(task: Task) -> Result:
    """Run one task; accuracies in percent, of every stage."""
    data = load(task["set"], task["data"])
    parts = split(len(data.X), task["seed"])
    grow = METHODS[task["method"]](task, data.X[parts.train], data.y[parts.train], data.m)
    stages = [judged(stage, data.X, data.y, parts) for stage in grow]
    return {name: [stage[name] for stage in stages] for name in stages[0]}


def judged(stage: Stage, X: np.ndarray, y: np.ndarray, parts: Split) -> dict:
    def accuracy(rows: np.ndarray) -> float:
        return round(100 * float((stage.predict(X[rows]) == y[rows]).mean()), 3)

    validation = accuracy(parts.validation)
    begun = perf_counter()
    test = accuracy(parts.test)
    return {
        "units": stage.units,
        "parameters": stage.parameters,
        "validation": validation,
        "test": test,
        "seconds": round(stage.seconds, 4),
        "predict": round(perf_counter() - begun, 5),
    }


def best(results: Iterable[tuple[Task, Result]], most: int | None = None) -> dict:
    """The stage with the best validation accuracy, the smallest of equals.

    Parameters
    ----------
    results : pairs of a task and its result
        What is to be chosen from: one data set, seed and method.
    most : int, optional
        Units at most.

    Returns
    -------
    dict
        The stage, with the `alpha` or `C` it is from, and `grid`: seconds of all the fits.
    """
    results = list(results)
    choices = [
        {name: column[i] for name, column in result.items()} | strength(task)
        for task, result in results
        for i in range(len(result["units"]))
        if most is None or result["units"][i] <= most
    ]
    chosen = max(choices, key=lambda stage: (stage["validation"], -stage["units"]))
    return chosen | {"grid": round(sum(result["seconds"][-1] for _, result in results), 3)}


def strength(task: Task) -> dict:
    return {name: task[name] for name in ("alpha", "C") if name in task}


# ---- polynomial networks ------------------------------------------------------------------------


def multi_output(task: Task, X: np.ndarray, y: np.ndarray, m: int) -> Iterator[Stage]:
    """Algorithm 1: the paper's, refitting the output layer, or blocks and full refitting."""
    design = Design(X, "squared", fit_lower="augment", n_threads=1)
    run = conditional_gradient(
        design, y, loss=task["loss"], penalty=task["penalty"], alpha=task["alpha"],
        refit=task["refit"], n_components=task["units"], n_outputs=m, random_state=task["seed"],
        tol=TOL, max_iter=STEPS.get(task["set"], 1000),
    )  # fmt: skip
    waiting = [k for k in STAGES if k <= task["units"]]
    for seconds, state in timed(run):
        k, last = state.n_components, state.stop or state.n_iter >= task["units"]
        if k and (last or (waiting and k >= waiting[0])):
            waiting = [later for later in waiting if later > k]
            yield network(PolyModel.from_state(state, design), seconds)
        if last:
            return


def timed(states: Iterable) -> Iterator[tuple[float, object]]:
    """States with the seconds spent on making them."""
    seconds, begun = 0.0, perf_counter()
    for state in states:
        seconds += perf_counter() - begun
        yield seconds, state
        begun = perf_counter()


def network(model: PolyModel, seconds: float) -> Stage:
    def predict(rows: np.ndarray) -> np.ndarray:
        return model.decision(rows, n_threads=1).argmax(axis=1)

    return Stage(model.n_components, model.H.size + model.V.size, seconds, predict)


def projected_gradient(task: Task, X: np.ndarray, y: np.ndarray, m: int) -> Iterator[Stage]:
    """Accelerated gradient steps over V and H, from random unit vectors H."""
    begun = perf_counter()
    options = {"loss": task["loss"], "penalty": task["penalty"], "alpha": task["alpha"]}
    problem = Problem.of(len(X), y, n_outputs=m, **options)
    design = Design(X, "squared", fit_lower="augment", n_threads=1)
    H = np.random.default_rng(task["seed"]).standard_normal((task["units"], design.n_features))
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    V = refit_output(design.activations(H), y, n_outputs=m, tol=1e-2, **options).V
    H, V = descend(design, problem, H, V, task["steps"])
    kept = V.any(axis=1)
    model = PolyModel(H[kept], V[kept], np.zeros(m), augment=True)
    yield network(model, perf_counter() - begun)


def one_vs_rest(task: Task, X: np.ndarray, y: np.ndarray, m: int) -> Iterator[Stage]:
    """A network for each class, all with at most k basis vectors."""
    design = Design(X, "squared", fit_lower="augment", n_threads=1)
    runs = []
    for c in range(m):
        run = conditional_gradient(
            design, np.where(y == c, 1, -1)[:, None], loss="binary_logistic", alpha=task["alpha"],
            n_components=task["units"], random_state=task["seed"], block=1, refit="output",
        )  # fmt: skip
        states = {state.n_components: (seconds, state) for seconds, state in timed(run)}
        runs.append(states)
    for k in (k for k in STAGES if k <= task["units"]):
        chosen = [states[max(i for i in states if i <= k)] for states in runs]
        H = np.vstack([state.H for _, state in chosen])
        V = np.zeros((len(H), m))
        V[np.arange(len(H)), np.repeat(range(m), [len(state.H) for _, state in chosen])] = (
            np.concatenate([state.V[:, 0] for _, state in chosen])
        )
        model = PolyModel(H, V, np.zeros(m), augment=True)
        stage = network(model, sum(seconds for seconds, _ in chosen))
        yield stage._replace(parameters=H.size + len(H))


# ---- scikit-learn -------------------------------------------------------------------------------


def linear(C: float) -> LogisticRegression:
    return LogisticRegression(C=C, max_iter=1000)


def linear_regression(task: Task, X: np.ndarray, y: np.ndarray, m: int) -> Iterator[Stage]:
    """Logistic regression on the features as they are."""
    yield fitted(linear(task["C"]), X, y, 0, m * (X.shape[1] + 1))


def polynomial_regression(task: Task, X: np.ndarray, y: np.ndarray, m: int) -> Iterator[Stage]:
    """Logistic regression on all products of two features."""
    model = make_pipeline(PolynomialFeatures(2, include_bias=False), linear(task["C"]))
    products = X.shape[1] * (X.shape[1] + 3) // 2
    yield fitted(model, X, y, products, m * (products + 1))


def support_vectors(task: Task, X: np.ndarray, y: np.ndarray, m: int) -> Iterator[Stage]:
    """The quadratic support vector machine."""
    model = SVC(C=task["C"], **QUADRATIC)
    stage = fitted(model, X, y, 0, 0)
    n, d = model.support_vectors_.shape
    yield stage._replace(units=n, parameters=n * (d + m - 1) + len(model.intercept_))


def nystroem(task: Task, X: np.ndarray, y: np.ndarray, m: int) -> Iterator[Stage]:
    """Logistic regression on Nystroem's features of the quadratic kernel."""
    for k in task["sizes"]:
        features = Nystroem(**QUADRATIC, n_components=k, random_state=task["seed"])
        size = k * (X.shape[1] + k) + m * (k + 1)
        yield fitted(make_pipeline(features, linear(task["C"])), X, y, k, size)


def fitted(model, X: np.ndarray, y: np.ndarray, units: int, parameters: int) -> Stage:
    begun = perf_counter()
    model.fit(X, y)
    return Stage(units, parameters, perf_counter() - begun, model.predict)


METHODS = {
    "conditional gradient": multi_output,
    "projected gradient": projected_gradient,
    "one-vs-rest": one_vs_rest,
    "linear LR": linear_regression,
    "quadratic SVC": support_vectors,
    "polynomial LR": polynomial_regression,
    "Nystroem": nystroem,
}
