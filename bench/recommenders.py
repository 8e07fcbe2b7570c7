"""The fits of the recommender experiment: a task (flat dict) in, RMSE, nDCG and costs out.

Rows are one-hot users and items. The ordinal models learn p(rating <= c) for c = 1..4 as outputs of
one factorization machine, and predict the expected rating; the regressors learn the rating itself.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from functools import lru_cache
from importlib.util import find_spec
from time import perf_counter
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from classifiers import timed
from experiment import Result, Task, load, split
from scipy.special import expit

from fastpoly import Design, PolyModel, conditional_gradient
from fastpoly.metrics import ndcg, rmse

STAGES = (1, 2, 3, 5, 8, 10, 15, 20, 25, 30, 40, 50)
LEVELS = np.arange(1, 6)
METRICS = ("rmse", "ndcg1", "ndcg5")
TOL = 0.05


class Part(NamedTuple):
    """Rows of one part of a split."""

    X: sp.csr_array
    user: np.ndarray
    item: np.ndarray
    rating: np.ndarray


class Stage(NamedTuple):
    """A model on the way: units, seconds of fitting so far, ratings it predicts for a part."""

    units: int
    seconds: float
    predict: Callable[[Part], np.ndarray]


@lru_cache(maxsize=1)
def parts(name: str, data: str, seed: int) -> tuple[Part, Part, Part]:
    """Training, validation and test part, each sorted by user."""
    ratings = load(name, data)
    X = ratings.one_hot()

    def part(rows: np.ndarray) -> Part:
        rows = rows[np.argsort(ratings.user[rows], kind="stable")]
        columns = (ratings.user[rows], ratings.item[rows], ratings.rating[rows].astype(float))
        return Part(X[rows], *columns)

    train, validation, test = map(part, split(len(ratings.rating), seed))
    return train, validation, test


def fit(task: Task) -> Result:
    """Run one task: the scores on the validation and test part, of every stage."""
    train, validation, test = parts(task["set"], task["data"], task["seed"])
    columns: dict[str, list] = {"units": [], "seconds": []}
    for stage in METHODS[task["method"]](task, train):
        columns["units"].append(stage.units)
        columns["seconds"].append(round(stage.seconds, 3))
        for name, rows in (("validation", validation), ("test", test)):
            for metric, value in scores(rows, stage.predict(rows)).items():
                columns.setdefault(f"{name}_{metric}", []).append(round(value, 5))
    return columns


def scores(part: Part, predicted: np.ndarray) -> dict[str, float]:
    """RMSE of the predictions cut to 1..5; nDCG as a mean over users with gain 2^y - 1."""
    return {
        "rmse": rmse(part.rating, np.clip(predicted, 1, 5)),
        "ndcg1": ndcg(part.rating, predicted, part.user, 1),
        "ndcg5": ndcg(part.rating, predicted, part.user, 5),
    }


# ---- fastpoly -----------------------------------------------------------------------------------


def expected_rating(O: np.ndarray) -> np.ndarray:
    """sum_c c p(rating = c) from the logits of p(rating <= c), c = 1..4, made monotone in c."""
    below = np.maximum.accumulate(expit(O), axis=1)
    return LEVELS[-1] - below.sum(axis=1)


def ordinal(task: Task, train: Part) -> Iterator[Stage]:
    """The multi-output factorization machine of the ordinal reduction."""
    signs = np.where(train.rating[:, None] <= LEVELS[:-1], 1, -1)
    for units, seconds, model in grow(task, train, signs, "binary_logistic", "anova"):
        yield Stage(units, seconds, lambda part, model=model: expected_rating(decide(model, part)))


def single_output(task: Task, train: Part) -> Iterator[Stage]:
    """Regression by a factorization machine or a polynomial network."""
    activation = "squared" if task["method"] == "single-output PN" else "anova"
    mean = train.rating.mean()
    target = train.rating[:, None] - mean
    for units, seconds, model in grow(task, train, target, "squared", activation):
        yield Stage(
            units, seconds, lambda part, model=model: mean + decide(model, part)[:, 0]
        )  # fmt: skip


def decide(model: PolyModel, part: Part) -> np.ndarray:
    return model.decision(part.X, n_threads=1)


def grow(
    task: Task, train: Part, Y: np.ndarray, loss: str, activation: str
) -> Iterator[tuple[int, float, PolyModel]]:
    """Units, seconds so far and model at every stage of a fit."""
    design = Design(train.X, activation, fit_lower=task["lower"], n_threads=1)
    run = conditional_gradient(
        design, Y, loss=loss, penalty=task["penalty"], alpha=task["alpha"],
        alpha_linear=task.get("alpha_linear", 1.0), n_components=task["units"],
        refit=task["refit"], tol=TOL, random_state=task["seed"],
    )  # fmt: skip
    waiting = [k for k in STAGES if k <= task["units"]]
    for seconds, state in timed(run):
        k, last = state.n_components, state.stop or state.n_iter >= task["units"]
        if last or (waiting and k >= waiting[0]):
            waiting = [later for later in waiting if later > k]
            yield k, seconds, PolyModel.from_state(state, design)
        if last:
            return


# ---- others -------------------------------------------------------------------------------------


def biases(task: Task, train: Part) -> Iterator[Stage]:
    """Ridge regression on users and items: no interaction."""
    from sklearn.linear_model import Ridge

    begun = perf_counter()
    model = Ridge(alpha=task["C"], solver="sparse_cg", tol=1e-6).fit(train.X, train.rating)
    yield Stage(0, perf_counter() - begun, lambda part: model.predict(part.X))


def my_fm(task: Task, train: Part) -> Iterator[Stage]:
    """myFM: Gibbs sampling, with a normal or an ordered probit likelihood."""
    import myfm

    probit = task["method"] == "myFM ordered probit"
    kind = myfm.MyFMOrderedProbit if probit else myfm.MyFMRegressor
    model = kind(rank=task["units"], random_seed=task["seed"])
    y = train.rating.astype(int) - 1 if probit else train.rating
    groups = [int(load(task["set"], task["data"]).n_users)]
    groups.append(train.X.shape[1] - groups[0])
    begun = perf_counter()
    n_iter = task["iterations"]
    with redirect_stderr(io.StringIO()):  # it shows a progress bar of its own
        model.fit(sp.csr_matrix(train.X), y, group_shapes=groups, n_iter=n_iter)
    seconds = perf_counter() - begun

    def predict(part: Part) -> np.ndarray:
        X = sp.csr_matrix(part.X)
        return model.predict_proba(X) @ LEVELS if probit else model.predict(X)

    yield Stage(task["units"], seconds, predict)


def cmfrec_als(task: Task, train: Part) -> Iterator[Stage]:
    """cmfrec: matrix factorization with biases by alternating least squares."""
    import pandas as pd
    from cmfrec import CMF

    frame = pd.DataFrame({"UserId": train.user, "ItemId": train.item, "Rating": train.rating})
    begun = perf_counter()
    model = CMF(k=task["units"], lambda_=task["C"], use_float=False, nthreads=1, verbose=False)
    model.fit(frame)
    seconds = perf_counter() - begun
    mean = train.rating.mean()

    def predict(part: Part) -> np.ndarray:
        known = np.isin(part.user, train.user) & np.isin(part.item, train.item)
        predicted = np.full(len(part.user), mean)
        predicted[known] = model.predict(part.user[known], part.item[known])
        return predicted

    yield Stage(task["units"], seconds, predict)


METHODS = {
    "ordinal FM": ordinal,
    "single-output FM": single_output,
    "single-output PN": single_output,
    "biases": biases,
}
if find_spec("myfm"):
    METHODS |= {"myFM regression": my_fm, "myFM ordered probit": my_fm}
if find_spec("cmfrec"):
    METHODS |= {"cmfrec ALS": cmfrec_als}
