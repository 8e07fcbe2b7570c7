"""Frames as they come: default fits of real tables with words, numbers and gaps, against rivals.

Nothing is tuned: every method has its default parameters and one thread. `fastpoly` is the
factorization machine of the task on the frame itself. Linear models get words as 0/1 columns,
numbers in standard units and medians for gaps; trees get words as categories and gaps as they are.
Losses are log-loss, or RMSE in standard deviations of the target. The three folds are the same for
all methods; seconds are CPU seconds of fitting. Half of the tables (`table_frames.CHOSEN_ON`) may
be looked at while defaults are chosen; `--judge` takes the other half.

    python bench/tables.py            # the tables to choose on
    python bench/tables.py --judge    # the tables to judge on: once, at the end
"""

import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from statistics import mean, median

import pandas as pd
from defaults import mean_ranks, one_fold, split
from experiment import Options, Result, Store, Task, options, run_tasks, table, write
from pandas.api.types import is_numeric_dtype
from sklearn.base import BaseEstimator
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from table_frames import BUNDLED, CHOSEN_ON, READERS, Frame

import fastpoly

OURS = "fastpoly"
MOST_PRODUCTS = 20_000  # columns of the linear model on products
MOST_CATEGORIES = 255  # of boosted trees
ENOUGH_ROWS = 500  # on larger tables, more than 1 % behind the linear model is a fault


# ---- methods ------------------------------------------------------------------------------------


def machine(data: Frame) -> BaseEstimator:
    names = {"numbers": "Regressor", "levels": "OrdinalRegressor"}
    kind = getattr(fastpoly, "FactorizationMachine" + names.get(data.kind, "Classifier"))
    return kind(random_state=0, n_threads=1)


def encoder() -> BaseEstimator:
    """0/1 columns of words, and numbers in standard units without gaps."""
    numbers = make_column_selector(dtype_include="number")
    words = make_column_selector(dtype_exclude="number")
    return make_column_transformer(
        (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), words),
    )


def linear(data: Frame, *features: BaseEstimator) -> BaseEstimator:
    model = Ridge() if data.kind == "numbers" else LogisticRegression(max_iter=2000)
    return make_pipeline(encoder(), *features, model)


def products(data: Frame) -> BaseEstimator | None:
    if encoder().fit_transform(data.X).shape[1] ** 2 > 2 * MOST_PRODUCTS:
        return None
    return linear(data, PolynomialFeatures(2, include_bias=False))


def categories(frame: pd.DataFrame) -> FunctionTransformer:
    """Words as categories, the same in every fold; as codes where there are too many."""
    levels = {
        c: pd.CategoricalDtype(frame[c].dropna().unique()) for c in frame if is_word(frame[c])
    }

    def encode(part: pd.DataFrame) -> pd.DataFrame:
        part = part.astype(levels)
        many = [c for c, kind in levels.items() if len(kind.categories) > MOST_CATEGORIES]
        return part.assign(**{c: part[c].cat.codes for c in many})

    return FunctionTransformer(encode)


def is_word(column: pd.Series) -> bool:
    return not is_numeric_dtype(column)


def trees(data: Frame) -> BaseEstimator:
    number = data.kind == "numbers"
    kind = HistGradientBoostingRegressor if number else HistGradientBoostingClassifier
    return make_pipeline(categories(data.X), kind(random_state=0))


def lightgbm(data: Frame) -> BaseEstimator | None:
    if find_spec("lightgbm") is None:
        return None
    import lightgbm

    kind = lightgbm.LGBMRegressor if data.kind == "numbers" else lightgbm.LGBMClassifier
    return make_pipeline(categories(data.X), kind(random_state=0, n_jobs=1, verbose=-1))


def boosting_machine(data: Frame) -> BaseEstimator | None:
    if find_spec("interpret") is None:
        return None
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    number = data.kind == "numbers"
    kind = ExplainableBoostingRegressor if number else ExplainableBoostingClassifier
    return kind(random_state=0, n_jobs=1)


METHODS: dict[str, Callable[[Frame], BaseEstimator | None]] = {
    OURS: machine,
    "linear": linear,
    "products + linear": products,
    "boosted trees": trees,
    "LightGBM": lightgbm,
    "EBM": boosting_machine,
}


# ---- running ------------------------------------------------------------------------------------


@cache
def load(name: str) -> Frame | None:
    return (READERS | BUNDLED)[name]()


def tasks(where: Options, judge: bool) -> list[Task]:
    """Every method on every table that is available."""
    half = [name for name in READERS if (name in CHOSEN_ON) != judge]
    names = [name for name in (BUNDLED if where.quick else half) if load(name) is not None]
    return [{"set": name, "method": method} for name in names for method in METHODS]


def fit(task: Task) -> Result:
    """Score, loss, CPU seconds of fitting and predicting for every fold; {} without a model."""
    data = load(task["set"])
    make = METHODS[task["method"]]
    if make(data) is None:
        return {}
    folds = [one_fold(make(data), data.X, data, *rows) for rows in split(data)]
    return {name: [fold[name] for fold in folds] for name in folds[0]}


def main(argv: list[str] | None = None) -> None:
    argv = sys.argv[1:] if argv is None else argv
    judge = "--judge" in argv
    with options(__doc__, [word for word in argv if word != "--judge"]) as where:
        name = "tables" if judge else "tables_chosen_on"
        store = Store(where.results / f"{name}_runs.json")
        report(where, name, run_tasks(fit, tasks(where, judge), store, where.processes, name))


# ---- reporting ----------------------------------------------------------------------------------


def report(where: Options, name: str, results: list[tuple[Task, Result]]) -> None:
    summary: dict[str, dict] = {}
    for task, result in results:
        means = {part: mean(values) for part, values in result.items()}
        summary.setdefault(task["set"], {})[task["method"]] = means
    methods = [m for m in METHODS if any(found[m] for found in summary.values())]
    ranked = [n for n, found in summary.items() if all(found[m] for m in methods)]
    ranks = mean_ranks(summary, ranked, "loss", methods)
    behind = {n: found[OURS]["loss"] / found["linear"]["loss"] - 1 for n, found in summary.items()}
    faults = [n for n in summary if len(load(n).y) > ENOUGH_ROWS and behind[n] > 0.01]
    text = f"Mean rank by loss over the {len(ranked)} tables that all methods fit; 1 is best\n\n"
    text += table(
        [
            "",
            "mean rank",
            "fastpoly better : worse",
            "fastpoly's time over its time, median",
            "most",
        ],
        [[m, f"{ranks[m]:.2f}", *against(summary, m)] for m in methods],
    )
    text += f"\nTables of more than {ENOUGH_ROWS} rows with a loss more than 1 % above the linear "
    text += f"model's: {len(faults)} of {sum(len(load(n).y) > ENOUGH_ROWS for n in summary)}"
    text += "".join(f", {n} {100 * behind[n]:+.1f} %" for n in faults) + "\n"
    rows = [
        [f"{n} ({load(n).kind})", "{} x {}".format(*load(n).X.shape),
         *(f"{found[m]['loss']:.3f}" if found[m] else "" for m in methods),
         f"{1e3 * found[OURS]['fit']:.0f}"]
        for n, found in summary.items()
    ]  # fmt: skip
    text += "\nLosses, and milliseconds of fastpoly's fit\n\n"
    text += table(["", "size", *methods, "ms"], rows)
    write(where, name, {"ranks": ranks, "faults": faults, "tables": summary}, text)


def against(summary: dict, rival: str) -> tuple[str, str, str]:
    """The numbers of tables won and lost, the median ratio of times and the largest one."""
    if rival == OURS:
        return "", "", ""
    pairs = [(found[OURS], found[rival]) for found in summary.values() if found[rival]]
    gains = [round(their["loss"] - our["loss"], 4) for our, their in pairs]
    ratios = [our["fit"] / their["fit"] for our, their in pairs]
    won, lost = sum(g > 0 for g in gains), sum(g < 0 for g in gains)
    return f"{won} : {lost}", f"{median(ratios):.2f}x", f"{max(ratios):.1f}x"


if __name__ == "__main__":
    main()
