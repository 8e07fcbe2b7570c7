"""The fits of the multi-class experiments: from a task (flat dict) to losses, accuracies and costs.

A task names the data, the seed, the method and its settings. A method yields stages: intermediate
models, or one model per size. `best` decides later, on the validation part, which alpha, C and size
are best. Seconds are CPU seconds of one thread, without the evaluation of the models.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from time import process_time
from typing import NamedTuple

import numpy as np
from experiment import Result, Split, Task, load, split
from projected_gradient import descend
from scipy.special import expit, softmax
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC

from fastpoly import (
    Design,
    FactorizationMachineClassifier,
    PathSearchCV,
    PolyModel,
    PolynomialNetworkClassifier,
    conditional_gradient,
)
from fastpoly.kernels.losses import get_loss
from fastpoly.problem import Problem
from fastpoly.refit import refit_output

QUADRATIC = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 1.0}  # (x'z + 1)^2
ESTIMATORS = {"PN": PolynomialNetworkClassifier, "FM": FactorizationMachineClassifier}


class Stage(NamedTuple):
    """An intermediate model: its size, the CPU seconds of fitting so far, and its predictions."""

    units: int
    parameters: int
    strength: float  # alpha or C
    seconds: float
    predict: Callable[[np.ndarray], np.ndarray]
    probabilities: Callable[[np.ndarray], np.ndarray] | None = None


class Rows(NamedTuple):
    """Rows and class codes of a set, and the parts that they belong to."""

    X: np.ndarray
    y: np.ndarray
    m: int
    parts: Split

    @property
    def train(self) -> tuple[np.ndarray, np.ndarray]:
        return self.X[self.parts.train], self.y[self.parts.train]


def fit(task: Task) -> Result:
    """Run one task; the columns of every stage."""
    data = load(task["set"], task["data"])
    rows = Rows(data.X, data.y, data.m, split(len(data.X), task["seed"]))
    with warnings.catch_warnings():  # the report mentions the borders of a grid
        warnings.simplefilter("ignore")
        stages = [judged(stage, rows) for stage in METHODS[task["method"]](task, rows)]
    return {name: [stage[name] for stage in stages] for name in stages[0]}


def judged(stage: Stage, rows: Rows) -> dict:
    """Log-loss and accuracy (percent) on the validation part and on the test part."""
    answer = {
        "units": stage.units, "parameters": stage.parameters, "strength": float(stage.strength),
        "seconds": round(stage.seconds, 4),
    }  # fmt: skip
    for name, part in (("validation", rows.parts.validation), ("test", rows.parts.test)):
        X, y = rows.X[part], rows.y[part]
        begun = process_time()
        labels = stage.predict(X)
        answer["predict"] = round(process_time() - begun, 5)
        answer[name] = round(100 * float((labels == y).mean()), 3)
        loss = None
        if stage.probabilities is not None:
            loss = round(loss_of(stage.probabilities(X), y, rows.m), 5)
        answer[f"{name}_loss"] = loss
    return answer


def loss_of(probabilities: np.ndarray, y: np.ndarray, m: int) -> float:
    return float(log_loss(y, probabilities, labels=np.arange(m)))


def best(results: Iterable[tuple[Task, Result]], most: int | None = None) -> dict:
    """The stage with the lowest validation log-loss; of equal ones, the smallest.

    A method without probabilities is judged by its accuracy.

    Parameters
    ----------
    results : pairs of a task and its result
        The candidates, of one data set, seed and method.
    most : int, optional
        Largest number of units.

    Returns
    -------
    dict
        The stage, and `grid`: seconds of all the fits.
    """
    results = list(results)
    choices = [
        {name: column[i] for name, column in result.items()} | settings(task)
        for task, result in results
        for i in range(len(result["units"]))
        if most is None or result["units"][i] <= most
    ]

    def badness(stage: dict) -> tuple[float, int]:
        loss = stage["validation_loss"]
        return (-stage["validation"] if loss is None else loss), stage["units"]

    seconds = sum(result["seconds"][-1] for _, result in results)
    return min(choices, key=badness) | {"grid": round(seconds, 3)}


def settings(task: Task) -> dict:
    """The settings of the task of a choice."""
    return {key: task[key] for key in ("penalty", "standardize", "ridge") if key in task}


# ---- fastpoly -----------------------------------------------------------------------------------


def path(task: Task, rows: Rows) -> list[Stage]:
    """The estimator as users have it, on a path of alphas; every model on it is a stage."""
    model = ESTIMATORS[task["activation"]](
        penalty=task["penalty"], n_components=task["units"], alpha_linear=task["ridge"],
        standardize=task["standardize"], random_state=task["seed"], n_threads=1,
    )  # fmt: skip
    stages: list[Stage] = []
    begun, paused = process_time(), 0.0

    def score(fitted, X: np.ndarray, y: np.ndarray) -> float:
        nonlocal paused
        now = process_time()
        found = fitted.model_
        sizes = (a.size for a in (found.H, found.V, found.intercept, found.linear))
        stages.append(
            Stage(
                found.n_components, sum(sizes), fitted.alpha_, now - begun - paused,
                fitted.predict, fitted.predict_proba,
            )
        )  # fmt: skip
        loss = loss_of(fitted.predict_proba(X), y, rows.m)
        paused += process_time() - now
        return -loss

    n = len(rows.parts.train)
    seen = np.concatenate([rows.parts.train, rows.parts.validation])  # the test part stays unseen
    cv = [(np.arange(n), np.arange(n, len(seen)))]
    PathSearchCV(model, cv=cv, scoring=score, refit=False).fit(rows.X[seen], rows.y[seen])
    return stages


def default(task: Task, rows: Rows) -> Iterator[Stage]:
    """The estimator with default parameters; nothing is chosen."""
    begun = process_time()
    model = ESTIMATORS[task["activation"]](random_state=task["seed"], n_threads=1).fit(*rows.train)
    seconds, found = process_time() - begun, model.model_
    size = sum(a.size for a in (found.H, found.V, found.intercept, found.linear))
    yield Stage(found.n_components, size, model.alpha_, seconds, model.predict, model.predict_proba)


def one_vs_rest(task: Task, rows: Rows) -> Iterator[Stage]:
    """One network of the paper's algorithm per class, with this many basis vectors each."""
    X, y = rows.train
    begun = process_time()
    design = Design(X, "squared", fit_lower="augment", n_threads=1)
    states = []
    for c in range(rows.m):
        *_, state = conditional_gradient(
            design, np.where(y == c, 1, -1)[:, None], loss="binary_logistic", alpha=task["alpha"],
            n_components=task["units"], random_state=task["seed"], block=1, refit="output",
        )  # fmt: skip
        states.append(state)
    H = np.vstack([state.H for state in states])
    V = np.zeros((len(H), rows.m))
    columns = np.repeat(range(rows.m), [len(state.H) for state in states])
    V[np.arange(len(H)), columns] = np.concatenate([state.V[:, 0] for state in states])
    model = PolyModel(H, V, np.zeros(rows.m), augment=True)

    def probabilities(X: np.ndarray) -> np.ndarray:
        P = expit(model.decision(X, n_threads=1))
        return P / P.sum(axis=1, keepdims=True)

    yield Stage(
        len(H), H.size + len(H), task["alpha"], process_time() - begun,
        lambda X: model.decision(X, n_threads=1).argmax(axis=1), probabilities,
    )  # fmt: skip


def projected_gradient(task: Task, rows: Rows) -> Iterator[Stage]:
    """Accelerated gradient steps over V and H, from random unit vectors H."""
    X, y = rows.train
    begun = process_time()
    options = {"loss": "logistic", "penalty": task["penalty"], "alpha": task["alpha"]}
    loss = get_loss("multiclass_logistic")
    problem = Problem.of(loss, task["penalty"], rows.m, alpha=task["alpha"])
    design = Design(X, "squared", fit_lower="augment", n_threads=1)
    H = np.random.default_rng(task["seed"]).standard_normal((task["units"], design.n_features))
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    V = refit_output(design.activations(H), y, n_outputs=rows.m, tol=1e-2, **options).V
    H, V = descend(design, problem, loss.encode(y, rows.m), H, V, task["steps"])
    kept = V.any(axis=1)
    model = PolyModel(H[kept], V[kept], np.zeros(rows.m), augment=True)
    yield Stage(
        model.n_components, model.H.size + model.V.size, task["alpha"], process_time() - begun,
        lambda X: model.decision(X, n_threads=1).argmax(axis=1),
        lambda X: softmax(model.decision(X, n_threads=1), axis=1),
    )  # fmt: skip


# ---- scikit-learn -------------------------------------------------------------------------------


def linear(C: float) -> LogisticRegression:
    return LogisticRegression(C=C, max_iter=1000)


def linear_regression(task: Task, rows: Rows) -> Iterator[Stage]:
    """Logistic regression on the original features."""
    yield fitted(linear(task["C"]), task["C"], rows, 0, rows.m * (rows.X.shape[1] + 1))


def polynomial_regression(task: Task, rows: Rows) -> Iterator[Stage]:
    """Logistic regression on all products of two features."""
    model = make_pipeline(PolynomialFeatures(2, include_bias=False), linear(task["C"]))
    products = rows.X.shape[1] * (rows.X.shape[1] + 3) // 2
    yield fitted(model, task["C"], rows, products, rows.m * (products + 1))


def support_vectors(task: Task, rows: Rows) -> Iterator[Stage]:
    """The quadratic support vector machine."""
    model = SVC(C=task["C"], **QUADRATIC)
    stage = fitted(model, task["C"], rows, 0, 0)
    n, d = model.support_vectors_.shape
    yield stage._replace(units=n, parameters=n * (d + rows.m - 1) + len(model.intercept_))


def nystroem(task: Task, rows: Rows) -> Iterator[Stage]:
    """Logistic regression on Nystroem's features of the quadratic kernel."""
    seconds = 0.0
    for k in (k for k in task["sizes"] if k <= len(rows.parts.train)):
        features = Nystroem(**QUADRATIC, n_components=k, random_state=task["seed"])
        size = k * (rows.X.shape[1] + k) + rows.m * (k + 1)
        model = make_pipeline(features, linear(task["C"]))
        stage = fitted(model, task["C"], rows, k, size)
        seconds += stage.seconds
        yield stage._replace(seconds=seconds)


def fitted(model, C: float, rows: Rows, units: int, parameters: int) -> Stage:
    begun = process_time()
    model.fit(*rows.train)
    seconds = process_time() - begun
    probabilities = getattr(model, "predict_proba", None)
    return Stage(units, parameters, C, seconds, model.predict, probabilities)


METHODS = {
    "path": path,
    "default": default,
    "projected gradient": projected_gradient,
    "one-vs-rest": one_vs_rest,
    "linear LR": linear_regression,
    "quadratic SVC": support_vectors,
    "polynomial LR": polynomial_regression,
    "Nystroem": nystroem,
}
