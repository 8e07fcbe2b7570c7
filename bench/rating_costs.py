"""What surrounds a recommender: joined columns, shards, new users, recommendations, and their cost.

A pass is one value and gradient of the ordinal loss of MovieLens 1M by 20 basis vectors; its
columns are ids, or also the items that a user rated and the users who rated an item. Planted
ratings (`planted.py`) are in shards, which two processes read. Of MovieLens 1M, every tenth user is
held out but for 10 ratings: `fold_in` gives these users to a model of the others, and is judged on
the rest of their ratings, beside a fit of all. Seconds are CPU seconds of one thread, but for the
shards.
"""

import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
import scipy.sparse as sp
from experiment import Options, Result, Store, Task, load, options, run_tasks, table, write
from planted import STARS, Planted, Ratings
from rating_sets import lists
from scale_lines import in_turns

from fastpoly import (
    Design,
    FactorizationMachineOrdinalRegressor,
    Joined,
    PolyModel,
    PosteriorAverage,
    recommend,
)
from fastpoly.metrics import rmse
from fastpoly.rows import as_rows

SIGNS = np.where(np.arange(5)[:, None] <= np.arange(4), 1.0, -1.0)
KNOWN = 10  # ratings of a user who is held out


def pass_over_columns(task: Task) -> Result:
    """Milliseconds of a pass over ids, and over joined columns."""
    ratings, rng, k = load("ml-1m", task["data"]), np.random.default_rng(0), 20
    order = np.argsort(ratings.user, kind="stable")
    user, item, n_users, n_items = ratings.user[order], ratings.item[order], *ratings[3:5]
    users = {"user": np.arange(n_users), "rated": lists(user, item, n_users)}
    items = {"item": np.arange(n_items), "raters": lists(item, user, n_items)}
    X = Joined({"user": user, "item": item}, user=users, item=items)
    design = Design(X.codes, "anova", fit_lower="explicit", n_threads=1)
    ids = as_rows(design, SIGNS[ratings.rating[order] - 1], loss="binary_logistic")
    kinds = {"ids": ids, "joined": X.rows_of(ids, None, "explicit")}

    def pass_over(rows):
        size = k * (rows.n_features + 4) + 4 + 4 * rows.n_features
        x = 0.1 * rng.standard_normal(size)
        return lambda: rows.value_grad(x, k, np.empty(size))

    found = in_turns({name: pass_over(rows) for name, rows in kinds.items()}, task["turns"])
    return {
        **{f"{name}, ms": 1000 * each["cpu"] for name, each in found.items()},
        "ratio": found["joined"]["cpu"] / found["ids"]["cpu"],
        "columns": X.n_features,
    }


def planted_shards(task: Task) -> Result:
    """A point estimate and an average of ratings in shards, by two processes."""
    memory = 2.5e8
    planted = Planted(task["rows"])
    with (
        tempfile.TemporaryDirectory() as folder,
        ProcessPoolExecutor(2, get_context("spawn")) as executor,
    ):
        shards, held = planted.write(Path(folder), 2**20)
        X = {"user": held.user, "item": held.item}
        machine = FactorizationMachineOrdinalRegressor(random_state=0, n_components=20)
        begun = perf_counter()
        point = machine.fit(shards.on(executor))
        point_seconds, begun = perf_counter() - begun, perf_counter()
        point_memory = resident(resource.RUSAGE_SELF)
        average = PosteriorAverage(
            machine, n_samples=task["samples"], memory=memory, random_state=0
        ).fit(shards.on(executor))
        seconds = perf_counter() - begun
    return {
        "rows": shards.n_samples, "features": shards.n_features,
        "point estimate, RMSE": rmse(held.stars, point.predict(X)),
        "average, RMSE": rmse(held.stars, average.predict(X)),
        "best possible RMSE": rmse(held.stars, expected_stars(planted, held)),
        "point estimate, elapsed s": point_seconds, "average, elapsed s": seconds,
        "point estimate, GB": point_memory, "average, GB": resident(resource.RUSAGE_SELF),
        "worker, GB": resident(resource.RUSAGE_CHILDREN), "R-hat": average.rhat_,
    }  # fmt: skip


def expected_stars(planted: Planted, held: Ratings) -> np.ndarray:
    return len(STARS) - (1 / (1 + np.exp(-planted.true_outputs(held.score)))).sum(axis=1)


def resident(who: int) -> float:
    """Gigabytes, the most so far; of the largest process for those that have ended."""
    return resource.getrusage(who).ru_maxrss / 1e6


def new_users(task: Task) -> Result:
    """RMSE of users with 10 known ratings, folded in or fitted, and milliseconds for each."""
    ratings, rng = load("ml-1m", task["data"]), np.random.default_rng(task["seed"])
    order = rng.permutation(len(ratings.rating))
    order = order[np.argsort(ratings.user[order], kind="stable")]
    user, y = ratings.user[order], ratings.rating[order].astype(float)
    X = sp.csr_array(ratings.one_hot()[order])
    new = np.isin(user, rng.permutation(ratings.n_users)[: ratings.n_users // 10])
    rank = np.arange(len(user)) - np.searchsorted(user, user)  # of a rating among its user's
    old, few, rest = ~new, new & (rank < KNOWN), new & (rank >= KNOWN)
    model = FactorizationMachineOrdinalRegressor(random_state=task["seed"], n_threads=1)
    if task["average"]:
        model = PosteriorAverage(model, n_samples=task["samples"], random_state=task["seed"])
    full = model.fit(X[old | few], y[old | few]).predict(X[rest])
    model.fit(X[old], y[old])
    begun = process_time()
    folded = model.fold_in(X[few], y[few])
    seconds = process_time() - begun
    errors = {
        "not folded in": model.predict(X[rest]),
        "folded in": folded.predict(X[rest]),
        "full fit": full,
    }
    found = {f"{name}, RMSE": rmse(y[rest], each) for name, each in errors.items()}
    return found | {"ms per user": 1000 * seconds / len(np.unique(user[few]))}


def recommendations(task: Task) -> Result:
    """Seconds for the top 10 of all users of MovieLens 1M, by random models of 20 vectors."""
    ratings, rng, k = load("ml-1m", task["data"]), np.random.default_rng(0), 20
    d = ratings.n_users + ratings.n_items
    users = sp.eye_array(ratings.n_users, d, format="csr")
    pairs = (np.ones(len(ratings.user)), (ratings.user, ratings.item))
    seen = sp.csr_array(pairs, shape=(ratings.n_users, ratings.n_items))
    kinds = {"numbers": (1, {}), "levels": (4, {"classes": np.arange(1, 6), "task": "ordinal"})}
    steps = {}
    for name, (m, more) in kinds.items():
        H, V = 0.3 * rng.standard_normal((k, d)), rng.standard_normal((k, m))
        bias = np.linspace(-2, 2, m) if m > 1 else np.zeros(1)
        model = PolyModel(H, V, bias, rng.standard_normal((m, d)), activation="anova", **more)
        steps[name] = lambda model=model: recommend(model, users, 10, exclude=seen)
    found = in_turns(steps, task["turns"])
    return {f"{name}, s": each["cpu"] for name, each in found.items()}


RUNS = {
    "A pass over MovieLens 1M with implicit columns": pass_over_columns,
    "Recommendations: the top 10 of all users of MovieLens 1M": recommendations,
    "New users of MovieLens 1M, point estimate": new_users,
    "New users of MovieLens 1M, average": new_users,
    "Planted ratings in shards, two processes": planted_shards,
}


def tasks(where: Options) -> list[Task]:
    quick = where.quick
    common = {"data": where.data, "seed": 0, "turns": 3 if quick else 9}
    common |= {"samples": 10 if quick else 200, "rows": 2e4 if quick else 1e7}
    return [{"run": name, "average": name.endswith("average"), **common} for name in RUNS]


def fit(task: Task) -> Result:
    return {key: round(float(value), 6) for key, value in RUNS[task["run"]](task).items()}


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "rating_costs_runs.json")
        found = run_tasks(fit, tasks(where), store, 1, "rating costs")
        text = ""
        for task, result in found:
            rows = [[key, f"{value:,.4g}"] for key, value in result.items()]
            text += f"\n{task['run']}\n\n" + table(["", "measured"], rows)
        write(where, "rating_costs", {task["run"]: result for task, result in found}, text)


if __name__ == "__main__":
    main()
