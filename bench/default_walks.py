"""What the constants of `fastpoly.strengths` are worth: default fits with other values of each.

The tables are those of `defaults.py` on which defaults are chosen, where a fit is fast. A figure is
the mean over the tables of the logarithm of the loss, or of the CPU seconds of fitting, relative to
the constants as they are: +2 % is a loss that is 2 % higher in the geometric mean. `alpha` is the
largest ratio of the chosen alphas over random states, as the median over the tables.

    python bench/default_walks.py [--processes 1]
"""

from statistics import mean, median

import numpy as np
import scipy.sparse as sp
from default_methods import METHODS
from default_sets import TABLES
from defaults import load, one_fold, split
from experiment import Options, Result, Store, Task, options, run_tasks, table, write

from fastpoly import strengths

MOST_CELLS = 20_000
QUICK = ("iris", "diabetes")
SEEDS = 3
VARIANTS: dict[str, dict[str, object]] = {
    "as it is": {},
    "no folds: a third held out": {"FEW_ROWS": 0, "FEW_ENTRIES": 0},
    "folds up to 700 rows": {"FEW_ENTRIES": 0},
    "alpha_linear=1": {"RIDGES": (1.0,)},
    "without the last ridge": {"RIDGES": strengths.RIDGES[:-1]},
    "alphas with a step of 3": {"ALPHA_SHARES": 3.0 ** -np.arange(12)},
    "the least loss, sure or not": {"CLEAR_ERRORS": 0.0},
}


def tasks(where: Options) -> list[Task]:
    """Every variant on every table."""
    names = QUICK if where.quick else [name for name in TABLES if TABLES[name].chosen_on]
    tables = {name: load(name) for name in names}
    small = [n for n, t in tables.items() if t is not None and np.prod(t.X.shape) <= MOST_CELLS]
    return [{"set": name, "variant": variant} for variant in VARIANTS for name in small]


def fit(task: Task) -> Result:
    """Losses and CPU seconds of the folds, and the alphas of random states on the first one."""
    data = load(task["set"])
    before = {name: getattr(strengths, name) for name in VARIANTS[task["variant"]]}
    for name, value in VARIANTS[task["variant"]].items():
        setattr(strengths, name, value)
    make = METHODS["machine" if sp.issparse(data.X) else "network"]
    try:
        parts = list(split(data))
        folds = [one_fold(make(data), data.X, data, *rows) for rows in parts]
        train = parts[0][0]
        models = [make(data).set_params(random_state=seed) for seed in range(SEEDS)]
        alphas = [model.fit(data.X[train], data.y[train]).alpha_ for model in models]
    finally:
        for name, value in before.items():
            setattr(strengths, name, value)
    found = {name: [fold[name] for fold in folds] for name in ("loss", "fit")}
    return {**found, "alphas": alphas}


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "default_walks_runs.json")
        report(where, run_tasks(fit, tasks(where), store, where.processes, "default_walks"))


def report(where: Options, results: list[tuple[Task, Result]]) -> None:
    found: dict[str, dict[str, Result]] = {}
    for task, result in results:
        found.setdefault(task["variant"], {})[task["set"]] = result
    base = found["as it is"]
    summary = {}
    for variant, tables in found.items():
        ratios = {
            part: mean(np.log(mean(r[part]) / mean(base[n][part])) for n, r in tables.items())
            for part in ("loss", "fit")
        }
        spread = median(max(r["alphas"]) / min(r["alphas"]) for r in tables.values())
        summary[variant] = {**{part: float(r) for part, r in ratios.items()}, "alpha": spread}
    rows = [
        [variant, f"{100 * s['loss']:+.1f} %", f"{100 * np.expm1(s['fit']):+.0f} %",
         f"{s['alpha']:.2f}x"]
        for variant, s in summary.items()
    ]  # fmt: skip
    text = f"{len(base)} tables of at most {MOST_CELLS:,} cells\n\n"
    text += table(["", "loss", "time", "alpha"], rows)
    write(where, "default_walks", summary, text)


if __name__ == "__main__":
    main()
