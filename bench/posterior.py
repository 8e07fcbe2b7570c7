"""Ratings by averages over the posterior: one small model against myFM, and against one best model.

The data are MovieLens with one-hot users and items, in the 50 / 25 / 25 splits of `recsys.py`; the
validation part is not used, because nothing is chosen. fastpoly keeps the average as one model of
at most 12 basis vectors; "all draws" is the mean of the predictions of its draws. myFM keeps every
draw. Coverage is that of intervals of 80 %, and the error ratio is the mean |error| of the most
uncertain fifth of the rows over that of the least uncertain one. Seconds are CPU seconds of one
thread; all methods run on one split, then on the next.
"""

import io
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.util import find_spec
from statistics import median
from time import process_time

import numpy as np
import scipy.sparse as sp
from experiment import Options, Result, Store, Task, load, options, run_tasks, spread, table, write
from recommenders import LEVELS, Part, parts, scores

from fastpoly import (
    FactorizationMachineOrdinalRegressor,
    FactorizationMachineRegressor,
    PosteriorAverage,
)

SETS = {"ml-100k": 5, "ml-1m": 2}  # number of splits
FIRST_SEED = 20
MACHINES = {
    "ordinal": FactorizationMachineOrdinalRegressor,
    "regression": FactorizationMachineRegressor,
}
LINES = {
    "point estimate, ordinal": {"method": "point", "machine": "ordinal"},
    "point estimate, regression": {"method": "point", "machine": "regression"},
    "PosteriorAverage, ordinal": {"method": "average", "machine": "ordinal"},
    "PosteriorAverage, regression": {"method": "average", "machine": "regression"},
}
if find_spec("myfm"):
    LINES |= {
        f"myFM {kind}, rank {rank}": {"method": "myFM", "machine": kind, "rank": rank}
        for kind in ("ordinal", "regression")
        for rank in (10, 20)
    }


def tasks(where: Options) -> list[Task]:
    """All tasks, one split after the other."""
    return [
        {"set": name, "seed": seed, "data": where.data, "samples": 20 if where.quick else 200}
        | line
        for name, n_splits in SETS.items()
        for seed in range(FIRST_SEED, FIRST_SEED + (1 if where.quick else n_splits))
        for line in LINES.values()
    ]


def fit(task: Task) -> Result:
    """Fit one method on one split, and score it on the test part."""
    train, _, test = parts(task["set"], task["data"], task["seed"])
    begun = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predict, more = METHODS[task["method"]](task, train)
    seconds = process_time() - begun
    begun = process_time()
    predicted = predict(test)
    result = scores(test, predicted)
    result |= {"fit": seconds, "predict": process_time() - begun}
    return {key: round(value, 6) for key, value in (result | more(test, predicted)).items()}


Method = tuple[Callable[[Part], np.ndarray], Callable[[Part, np.ndarray], dict]]


def machine(task: Task):
    return MACHINES[task["machine"]](random_state=task["seed"], n_threads=1)


def point(task: Task, train: Part) -> Method:
    """The best single model, with the default alpha."""
    model = machine(task).fit(train.X, train.rating)
    return lambda part: model.predict(part.X), lambda part, predicted: {
        "vectors": model.n_components_
    }


def average(task: Task, train: Part) -> Method:
    """PosteriorAverage with its defaults."""
    model = PosteriorAverage(
        machine(task), n_samples=task["samples"], random_state=task["seed"]
    ).fit(train.X, train.rating)

    def more(part: Part, predicted: np.ndarray) -> dict:
        draws = model.sample(part.X, min(task["samples"], model.n_draws_)).mean(axis=0)
        low, high = model.predict_interval(part.X, 0.8).T
        _, std = model.predict(part.X, return_std=True)
        error, order = np.abs(part.rating - predicted), np.argsort(std)
        fifth = len(order) // 5
        return {
            "vectors": model.model_.n_components,
            "all_draws": scores(part, draws)["rmse"],
            "coverage": np.mean((low <= part.rating) & (part.rating <= high)),
            "error_ratio": error[order[-fifth:]].mean() / error[order[:fifth]].mean(),
            "rhat": model.rhat_,
        }

    return lambda part: model.predict(part.X), more


def my_fm(task: Task, train: Part) -> Method:
    """myFM: Gibbs sampling, with a normal or an ordered probit likelihood."""
    import myfm

    probit = task["machine"] == "ordinal"
    kind = myfm.MyFMOrderedProbit if probit else myfm.MyFMRegressor
    model = kind(rank=task["rank"], random_seed=task["seed"])
    y = train.rating.astype(int) - 1 if probit else train.rating
    n_users = int(load(task["set"], task["data"]).n_users)
    groups = [n_users, train.X.shape[1] - n_users]
    with redirect_stderr(io.StringIO()):  # to hide its progress bar
        model.fit(sp.csr_matrix(train.X), y, group_shapes=groups, n_iter=task["samples"])

    def predict(part: Part) -> np.ndarray:
        X = sp.csr_matrix(part.X)
        return model.predict_proba(X) @ LEVELS if probit else model.predict(X)

    return predict, lambda part, predicted: {"vectors": task["rank"]}


METHODS = {"point": point, "average": average, "myFM": my_fm}
COLUMNS = {
    "rmse": "RMSE", "ndcg5": "nDCG@5", "all_draws": "RMSE, all draws", "fit": "fit, s",
    "predict": "predict, ms", "vectors": "vectors", "coverage": "coverage",
    "error_ratio": "error ratio",
}  # fmt: skip


def report(where: Options, results: list[tuple[Task, Result]]) -> None:
    """One table per set: means over the splits, medians of seconds."""
    text, summary = "# Ratings by averages over the posterior\n\n" + (__doc__ or ""), {}
    for name in SETS:
        rows = []
        for label, line in LINES.items():
            own = [
                result
                for task, result in results
                if task["set"] == name and line.items() <= task.items()
                and ("rank" in line) == ("rank" in task)
            ]  # fmt: skip
            summary[f"{name}, {label}"] = own
            rows.append([label, *(cell(key, own) for key in COLUMNS)])
        text += f"\n## {name}\n\n" + table(["method", *COLUMNS.values()], rows)
    write(where, "posterior", summary, text)


def cell(key: str, results: list[Result]) -> str:
    values = [result[key] for result in results if key in result]
    if not values:
        return ""
    if key in ("fit", "predict"):
        return f"{median(values) * (1000 if key == 'predict' else 1):.1f}"
    if key == "vectors":
        return f"{median(values):.0f}"
    return spread(values, 4 if key in ("rmse", "ndcg5", "all_draws") else 3)


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "posterior_runs.json")
        report(where, run_tasks(fit, tasks(where), store, where.processes, "posterior"))


if __name__ == "__main__":
    main()
