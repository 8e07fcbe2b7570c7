"""Ratings by averages over the posterior: one small model against myFM, and against one best model.

The sets and splits are those of `rating_sets.py`; the validation part is not used, because nothing
is chosen. "Joined" methods see the side information, others see ids only. fastpoly keeps the
average as one model of at most 20 basis vectors; "above all draws" is the difference of its RMSE to
that of the mean of the predictions of its draws, on 20,000 rows. myFM keeps every draw; it and
Surprise ran on the first split only. Coverage is that of intervals of 80 %, and the error ratio is
the mean |error| of the most uncertain fifth of the rows over that of the least uncertain one.
Seconds are CPU seconds of one thread; all methods run on one split, then on the next.
"""

import io
import warnings
from collections import defaultdict
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib.util import find_spec
from statistics import median
from time import process_time

import numpy as np
import scipy.sparse as sp
from experiment import Options, Result, Store, Task, options, run_tasks, spread, table, write
from rating_sets import LEVELS, Part, available, parts
from recommenders import scores

from fastpoly import (
    FactorizationMachineOrdinalRegressor,
    FactorizationMachineRegressor,
    PosteriorAverage,
)
from fastpoly.metrics import rmse

# The number of splits; of u1, whose split is fixed, the number of seeds.
SETS = {"ml-100k": 5, "ml-1m": 1, "ml-100k u1": 2, "InstEval": 2, "ml-1m 90/10": 1}
SIDE = "ml-100k u1"
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
    "PosteriorAverage, ordinal, 12 vectors": {
        "method": "average", "machine": "ordinal", "vectors": 12,
    },
    "PosteriorAverage, ordinal, 30 draws": {
        "method": "average", "machine": "ordinal", "draws": 30, "warmup": 10,
    },
}  # fmt: skip
if find_spec("myfm"):
    LINES |= {
        f"myFM {kind}, rank {rank}": {"method": "myFM", "machine": kind, "rank": rank}
        for kind in ("ordinal", "regression")
        for rank in (10, 20)
    }
if find_spec("cmfrec"):
    LINES["cmfrec ALS, rank 20"] = {"method": "cmfrec", "machine": "ALS", "rank": 20}
if find_spec("surprise"):
    LINES["Surprise SVD++, rank 20"] = {"method": "SVD++", "machine": "SVD++", "rank": 20}
JOINED_LINES = {
    f"{label}, joined": {**line, "joined": True}
    for label, line in LINES.items()
    if not {"vectors", "draws"} & set(line)
    and (line["method"] in ("point", "average") or (line["method"], line["rank"]) == ("myFM", 10))
}


def lines(name: str) -> dict[str, dict]:
    """The methods that are compared on a set."""
    found = LINES | (JOINED_LINES if name == SIDE else {})
    if name not in ("ml-100k", "ml-1m"):
        found = {
            label: line for label, line in found.items() if not {"vectors", "draws"} & set(line)
        }
    if name.startswith("ml-1m"):  # others of myFM took longer, and were worse; SVD++ takes an hour
        slow = [label for label in found if label.startswith(("myFM", "Surprise"))]
        if name == "ml-1m":
            slow.remove("myFM regression, rank 20")
        found = {label: line for label, line in found.items() if label not in slow}
    return found


def tasks(where: Options, sets: list[str]) -> list[Task]:
    """All tasks, one split after the other; rivals that take long run on the first one only."""
    return [
        {"set": name, "seed": seed, "data": where.data, "samples": 20 if where.quick else 200}
        | line
        for name in sets
        for seed in range(FIRST_SEED, FIRST_SEED + (1 if where.quick else SETS[name]))
        for line in lines(name).values()
        if seed == FIRST_SEED or line["method"] not in ("myFM", "SVD++")
    ]


def fit(task: Task) -> Result:
    """Fit one method on one split, and score it on the test part."""
    train, _, test = parts(task["set"], task["data"], task["seed"])
    if task.get("joined") and task["method"] != "myFM":
        train, test = train._replace(X=train.joined), test._replace(X=test.joined)
    begun = process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        predict, more = METHODS[task["method"]](task, train)
    seconds = process_time() - begun
    predict(test)  # the first call takes longer, for memory and modules
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
    names = {"draws": "n_samples", "warmup": "n_warmup", "vectors": "n_components"}
    options = {own: task[name] for name, own in names.items() if name in task}
    options = {"n_samples": task["samples"], "random_state": task["seed"]} | options
    model = PosteriorAverage(machine(task), **options).fit(train.X, train.rating)

    def more(part: Part, predicted: np.ndarray) -> dict:
        some = np.random.default_rng(0).permutation(len(predicted))[:20_000]
        X, y, predicted = part.X[some], part.rating[some], np.clip(predicted[some], 1, 5)
        draws = np.clip(model.sample(X, model.n_draws_).mean(axis=0), 1, 5)
        low, high = model.predict_interval(X, 0.8).T
        _, std = model.predict(X, return_std=True)
        error, order = np.abs(y - predicted), np.argsort(std)
        fifth = len(order) // 5
        return {
            "vectors": model.model_.n_components,
            "above_draws": rmse(y, predicted) - rmse(y, draws),
            "coverage": np.mean((low <= y) & (y <= high)),
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
    n_users, joined = users_of(train), bool(task.get("joined"))
    groups = [n_users, train.X.shape[1] - n_users]
    if joined:
        groups = np.bincount(train.joined.fields).tolist()

    def rows(part: Part) -> dict:
        if not joined:
            return {"X": sp.csr_matrix(part.X)}
        blocks = [
            myfm.RelationBlock(code, sp.csr_matrix(B))
            for code, B in zip(codes_of(part.joined), part.joined.tables.blocks, strict=True)
        ]
        return {"X": None, "X_rel": blocks}

    with redirect_stderr(io.StringIO()):  # to hide its progress bar
        model.fit(y=y, group_shapes=groups, n_iter=task["samples"], **rows(train))

    def predict(part: Part) -> np.ndarray:
        if probit:
            return model.predict_proba(**rows(part)) @ LEVELS
        return model.predict(**rows(part))

    return predict, lambda part, predicted: {"vectors": task["rank"]}


def users_of(part: Part) -> int:
    """The number of users: columns before the first one of an item."""
    return int(part.X.indices[1::2].min() - part.item.min())


def codes_of(joined) -> list[np.ndarray]:
    """The key of every row in each table."""
    codes = joined.codes.indices.reshape(joined.codes.shape[0], -1)
    return list((codes - joined.tables.level_offsets[:-1]).T)


def cmfrec_als(task: Task, train: Part) -> Method:
    """cmfrec: matrix factorization with biases, by alternating least squares."""
    import pandas as pd
    from cmfrec import CMF

    frame = pd.DataFrame({"UserId": train.user, "ItemId": train.item, "Rating": train.rating})
    model = CMF(k=task["rank"], lambda_=10.0, use_float=False, nthreads=1, verbose=False)
    model.fit(frame)

    def predict(part: Part) -> np.ndarray:
        known = np.isin(part.user, train.user) & np.isin(part.item, train.item)
        predicted = np.full(len(part.user), train.rating.mean())
        predicted[known] = model.predict(part.user[known], part.item[known])
        return predicted

    return predict, lambda part, predicted: {"vectors": task["rank"]}


def svd_plus_plus(task: Task, train: Part) -> Method:
    """Surprise: SVD++, whose users are also what they rated."""
    from surprise import SVDpp, Trainset

    by_user, by_item = defaultdict(list), defaultdict(list)
    for user, item, rating in zip(train.user, train.item, train.rating, strict=True):
        by_user[user].append((item, rating))
        by_item[item].append((user, rating))
    ids = [{key: key for key in rows} for rows in (by_user, by_item)]
    n_users, n_items = max(by_user) + 1, max(by_item) + 1
    known = Trainset(by_user, by_item, n_users, n_items, len(train.rating), (1, 5), *ids)
    model = SVDpp(n_factors=task["rank"], random_state=task["seed"]).fit(known)

    def predict(part: Part) -> np.ndarray:
        pairs = zip(part.user, part.item, strict=True)
        return np.array([model.predict(user, item).est for user, item in pairs])

    return predict, lambda part, predicted: {"vectors": task["rank"]}


KEYS = {"method", "machine", "rank", "joined", "vectors", "draws", "warmup"}
METHODS = {
    "point": point, "average": average, "myFM": my_fm, "cmfrec": cmfrec_als,
    "SVD++": svd_plus_plus,
}  # fmt: skip
COLUMNS = {
    "rmse": "RMSE", "ndcg5": "nDCG@5", "above_draws": "above all draws", "fit": "fit, s",
    "predict": "predict, ms", "vectors": "vectors", "coverage": "coverage",
    "error_ratio": "error ratio",
}  # fmt: skip


def report(where: Options, sets: list[str], results: list[tuple[Task, Result]]) -> None:
    """One table per set: means over the splits, medians of seconds."""
    text, summary = "Test part, mean ± standard deviation over the splits\n", {}
    for name in sets:
        rows = []
        for label, line in lines(name).items():
            own = [
                result
                for task, result in results
                if task["set"] == name and line == {key: task[key] for key in task if key in KEYS}
            ]  # fmt: skip
            summary[f"{name}, {label}"] = own
            rows.append([label, *(cell(key, own) for key in COLUMNS)])
        text += f"\n{name}\n\n" + table(["method", *COLUMNS.values()], rows)
    write(where, "posterior", summary, text)


def cell(key: str, results: list[Result]) -> str:
    values = [result[key] for result in results if key in result]
    if not values:
        return ""
    if key in ("fit", "predict"):
        return f"{median(values) * (1000 if key == 'predict' else 1):.1f}"
    if key == "vectors":
        return f"{median(values):.0f}"
    return spread(values, 4 if key in ("rmse", "ndcg5", "above_draws") else 3)


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "posterior_runs.json")
        sets = [name for name in SETS if available(name, where.data)]
        found = run_tasks(fit, tasks(where, sets), store, where.processes, "posterior")
        report(where, sets, found)


if __name__ == "__main__":
    main()
