"""The fits of the recommender experiment: from a task (flat dict) to RMSE, nDCG and costs.

Rows are one-hot users and items. The ordinal models learn p(rating <= c) for c = 1..4 as outputs of
one factorization machine, and predict the expected rating; the regressors learn the rating itself.
Seconds are CPU seconds of one thread, without the evaluation of the models.
"""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from importlib.util import find_spec
from time import process_time
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from experiment import Result, Task, load
from rating_sets import LEVELS, Part, parts

from fastpoly import (
    FactorizationMachineOrdinalRegressor,
    FactorizationMachineRegressor,
    PathSearchCV,
)
from fastpoly.metrics import ndcg, rmse

STAGES = (1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 40, 50)
METRICS = ("rmse", "ndcg1", "ndcg5")
MACHINES = {
    "ordinal FM": FactorizationMachineOrdinalRegressor,
    "single-output FM": FactorizationMachineRegressor,
}


class Stage(NamedTuple):
    """An intermediate model: its size, the CPU seconds of fitting so far, and its predictions."""

    units: int
    strength: float | None  # alpha or C
    seconds: float
    predict: Callable[[Part], np.ndarray]


def fit(task: Task) -> Result:
    """Run one task; return the scores of every stage on the validation and test parts."""
    train, validation, test = parts(task["set"], task["data"], task["seed"])
    columns: dict[str, list] = {"units": [], "strength": [], "seconds": []}
    with warnings.catch_warnings():  # the report mentions the borders of a grid
        warnings.simplefilter("ignore")
        stages = list(METHODS[task["method"]](task, train, validation))
    for stage in stages:
        columns["units"].append(stage.units)
        columns["strength"].append(None if stage.strength is None else float(stage.strength))
        columns["seconds"].append(round(stage.seconds, 3))
        for name, rows in (("validation", validation), ("test", test)):
            for metric, value in scores(rows, stage.predict(rows)).items():
                columns.setdefault(f"{name}_{metric}", []).append(round(value, 5))
    return columns


def scores(part: Part, predicted: np.ndarray) -> dict[str, float]:
    """RMSE of the predictions clipped to 1..5; nDCG as a mean over users, with gain 2^y - 1."""
    return {
        "rmse": rmse(part.rating, np.clip(predicted, 1, 5)),
        "ndcg1": ndcg(part.rating, predicted, part.user, 1),
        "ndcg5": ndcg(part.rating, predicted, part.user, 5),
    }


# ---- fastpoly -----------------------------------------------------------------------------------


def machine(task: Task):
    """An estimator with default parameters, except for the penalty and the number of vectors."""
    return MACHINES[task["machine"]](
        n_components=task["units"], penalty=task["penalty"], alpha_linear=task["ridge"],
        random_state=task["seed"], n_threads=1,
    )  # fmt: skip


def default(task: Task, train: Part, validation: Part) -> Iterator[Stage]:
    """alpha comes from the noise level of the training part; nothing is chosen."""
    begun = process_time()
    model = machine(task).fit(train.X, train.rating)
    seconds = process_time() - begun
    yield Stage(model.n_components_, model.alpha_, seconds, lambda part: model.predict(part.X))


def search(task: Task, train: Part, validation: Part) -> list[Stage]:
    """A path of alphas by PathSearchCV; every model on it is a stage."""
    stages: list[Stage] = []
    begun, paused = process_time(), 0.0

    def score(model, X: sp.csr_array, y: np.ndarray) -> float:
        nonlocal paused
        now = process_time()
        stages.append(
            Stage(
                model.n_components_, model.alpha_, now - begun - paused,
                lambda part: model.predict(part.X),
            )
        )  # fmt: skip
        error = rmse(y, np.clip(model.predict(X), 1, 5))
        paused += process_time() - now
        return -error

    X, y = sp.vstack([train.X, validation.X]), np.r_[train.rating, validation.rating]
    n = len(train.rating)
    PathSearchCV(
        machine(task), n_alphas=task["alphas"], alpha_min_ratio=task["ratio"], refit=False,
        scoring=score, cv=[(np.arange(n), np.arange(n, len(y)))],
    ).fit(sp.csr_array(X), y)  # fmt: skip
    return stages


# ---- others -------------------------------------------------------------------------------------


def biases(task: Task, train: Part, validation: Part) -> Iterator[Stage]:
    """Ridge regression on users and items, without interactions."""
    from sklearn.linear_model import Ridge

    begun = process_time()
    model = Ridge(alpha=task["C"], solver="sparse_cg", tol=1e-6).fit(train.X, train.rating)
    yield Stage(0, task["C"], process_time() - begun, lambda part: model.predict(part.X))


def my_fm(task: Task, train: Part, validation: Part) -> Iterator[Stage]:
    """myFM: Gibbs sampling, with a normal or an ordered probit likelihood."""
    import myfm

    probit = task["method"] == "myFM ordered probit"
    kind = myfm.MyFMOrderedProbit if probit else myfm.MyFMRegressor
    model = kind(rank=task["units"], random_seed=task["seed"])
    y = train.rating.astype(int) - 1 if probit else train.rating
    groups = [int(load(task["set"], task["data"]).n_users)]
    groups.append(train.X.shape[1] - groups[0])
    begun = process_time()
    n_iter = task["iterations"]
    with redirect_stderr(io.StringIO()):  # to hide its progress bar
        model.fit(sp.csr_matrix(train.X), y, group_shapes=groups, n_iter=n_iter)
    seconds = process_time() - begun

    def predict(part: Part) -> np.ndarray:
        X = sp.csr_matrix(part.X)
        return model.predict_proba(X) @ LEVELS if probit else model.predict(X)

    yield Stage(task["units"], None, seconds, predict)


def cmfrec_als(task: Task, train: Part, validation: Part) -> Iterator[Stage]:
    """cmfrec: matrix factorization with biases by alternating least squares."""
    import pandas as pd
    from cmfrec import CMF

    frame = pd.DataFrame({"UserId": train.user, "ItemId": train.item, "Rating": train.rating})
    begun = process_time()
    model = CMF(k=task["units"], lambda_=task["C"], use_float=False, nthreads=1, verbose=False)
    model.fit(frame)
    seconds = process_time() - begun
    mean = train.rating.mean()

    def predict(part: Part) -> np.ndarray:
        known = np.isin(part.user, train.user) & np.isin(part.item, train.item)
        predicted = np.full(len(part.user), mean)
        predicted[known] = model.predict(part.user[known], part.item[known])
        return predicted

    yield Stage(task["units"], task["C"], seconds, predict)


METHODS = {
    "default": default,
    "search": search,
    "biases": biases,
}
if find_spec("myfm"):
    METHODS |= {"myFM regression": my_fm, "myFM ordered probit": my_fm}
if find_spec("cmfrec"):
    METHODS |= {"cmfrec ALS": cmfrec_als}
