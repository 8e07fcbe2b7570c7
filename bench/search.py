"""Choosing alpha by cross-validation: `PathSearchCV` against scikit-learn's LogisticRegressionCV.

Both have default parameters and one thread: ten strengths, five folds, and the best one fitted on
all training rows. The rival sees all products of standardized features. 75 % of the rows are for
training; for wine 119 rows, and for krkopt 14,000 rows with one-hot fields. There, a factorization
machine of at most 200 basis vectors and a single split is compared with logistic regression on all
products of two fields, with C = 1 and with the best C of a split. Seconds are CPU seconds of
fitting only.
"""

import os
import warnings
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
from experiment import Options, Result, Store, Task, load, options, run_tasks, spread, table, write
from sklearn.base import BaseEstimator
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler

from fastpoly import FactorizationMachineClassifier, PathSearchCV, PolynomialNetworkClassifier

SETS = ("wine", "segment", "satimage", "digits", "letter")
CHESS = "krkopt"
CHESS_ROWS = 14_000
CHESS_C = (1, 10, 100)
ITERATIONS = 1000  # largest number of iterations of the rival's solver
LARGE = "PathSearchCV, 150 vectors"  # on letter, which needs more than the 50 of the default
OURS, RIVAL = "PathSearchCV", "products + LogisticRegressionCV"
CHESS_METHODS = ("PathSearchCV", "products + LR, C = 1", "products + LR, best C")
SEEDS = {"wine": 3, "segment": 3, "satimage": 1, "digits": 2, "letter": 1, CHESS: 2}


def chess_file() -> Path:
    return Path(os.environ.get("FASTPOLY_DATA", "")) / "krkopt.npz"


def rows_of(task: Task) -> tuple:
    """X, X, y, y of the training and the test part."""
    name, size = task["set"], 0.75
    if name == CHESS:
        with np.load(chess_file()) as arrays:
            X, y = arrays["X"], arrays["y"].astype(int)
        X, size = OneHotEncoder().fit_transform(X), CHESS_ROWS
    elif name == "wine":
        (X, y), size = load_wine(return_X_y=True), 119
    else:
        data = load(name, task["data"])
        X, y = data.X, data.y
    return train_test_split(X, y, train_size=size, random_state=task["seed"], stratify=y)


def model_of(task: Task) -> BaseEstimator:
    name, method, seed = task["set"], task["method"], task["seed"]
    if name == CHESS and method == OURS:
        machine = FactorizationMachineClassifier(n_components=200, random_state=seed, n_threads=1)
        return PathSearchCV(machine, cv=0.2)
    if name == CHESS:
        products = PolynomialFeatures(2, interaction_only=True, include_bias=False)
        model = make_pipeline(products, LogisticRegression(max_iter=ITERATIONS))
        if method.endswith("C = 1"):
            return model
        split = StratifiedShuffleSplit(1, test_size=0.2, random_state=seed)
        grid = {"logisticregression__C": CHESS_C}
        return GridSearchCV(model, grid, cv=split, scoring="neg_log_loss")
    if method in (OURS, LARGE):
        units = 150 if method == LARGE else 50
        network = PolynomialNetworkClassifier(n_components=units, random_state=seed, n_threads=1)
        return PathSearchCV(network)
    products = PolynomialFeatures(2, include_bias=False)
    logistic = LogisticRegressionCV(
        Cs=10, cv=5, max_iter=ITERATIONS, scoring="neg_log_loss", use_legacy_attributes=False,
        l1_ratios=(0.0,),
    )  # fmt: skip
    return make_pipeline(StandardScaler(), products, logistic)


def fit(task: Task) -> Result:
    """CPU seconds of fitting, log-loss and accuracy on the test part, and the choice."""
    X, X_test, y, y_test = rows_of(task)
    model = model_of(task)
    with warnings.catch_warnings():  # about borders of the grid, and about too few iterations
        warnings.simplefilter("ignore")
        begun = process_time()
        model.fit(X, y)
        seconds = process_time() - begun
    P, classes = model.predict_proba(X_test), np.unique(y)
    hits = P.argmax(axis=1) == np.searchsorted(classes, y_test)
    return {
        "rows": len(y), "seconds": round(seconds, 3),
        "loss": round(float(log_loss(y_test, P, labels=classes)), 5),
        "accuracy": round(100 * float(hits.mean()), 3), "chosen": choice(model),
    }  # fmt: skip


def choice(model: BaseEstimator) -> str:
    if isinstance(model, PathSearchCV):
        alpha, units = model.best_params_.values()
        share = alpha / model.alphas_[0]
        return f"alpha {share:.1g} of the largest, {units} vectors"
    if isinstance(model, GridSearchCV):
        return f"C {model.best_params_['logisticregression__C']:g}"
    last = model[-1]
    return f"C {float(np.ravel(last.C_)[0] if hasattr(last, 'C_') else last.C):.3g}"


def tasks(where: Options) -> list[Task]:
    """All tasks, interleaved: all methods on one split, then on the next."""
    names = ("wine", "segment") if where.quick else SETS
    found = [
        {"set": name, "method": method, "seed": seed, "data": where.data}
        for name in names
        for seed in range(1 if where.quick else SEEDS[name])
        for method in ((OURS, LARGE, RIVAL) if name == "letter" else (OURS, RIVAL))
    ]
    if not where.quick and chess_file().is_file():
        found += [
            {"set": CHESS, "method": method, "seed": seed, "data": where.data}
            for seed in range(SEEDS[CHESS])
            for method in CHESS_METHODS
        ]
    return found


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "search_runs.json")
        report(where, run_tasks(fit, tasks(where), store, where.processes, "search"))


def report(where: Options, results: list[tuple[Task, Result]]) -> None:
    summary: dict[str, dict[str, dict]] = {}
    for task, result in results:
        methods = summary.setdefault(task["set"], {})
        methods.setdefault(task["method"], {k: [] for k in result})
        for key, value in result.items():
            methods[task["method"]][key].append(value)
    rows = []
    for name, methods in summary.items():
        first = RIVAL if RIVAL in methods else CHESS_METHODS[1]
        for method, columns in methods.items():
            pairs = zip(columns["seconds"], methods[first]["seconds"], strict=True)
            ratio = median(ours / theirs for ours, theirs in pairs)
            rows.append(
                [f"{name}, {method}", columns["rows"][0], f"{median(columns['seconds']):.2f}",
                 f"{ratio:.2f}x", spread(columns["loss"], 4), spread(columns["accuracy"]),
                 columns["chosen"][0]]
            )  # fmt: skip
    header = ["", "rows", "seconds", "time ratio", "test log-loss", "accuracy (%)", "chosen"]
    write(where, "search", summary, table(header, rows))


if __name__ == "__main__":
    main()
