"""Figure 4: recommending as ordinal regression, RMSE and nDCG against the number of basis vectors.

The data are MovieLens, with one-hot users and items, in 50 / 25 / 25 splits. Ordinal multi-output
factorization machines are compared with single-output regression, both with a linear part: with the
default alpha, and with the alpha and the number of basis vectors that `PathSearchCV` chooses by
validation RMSE. They are also compared with user and item biases (ridge), with myFM and cmfrec, if
these are installed, and with the release 5de635d on the same splits. Settings are chosen on the
validation part, separately for every measure. nDCG is the mean over users, with gain 2^rating - 1.
Seconds are CPU seconds of one thread. The figures of 5de635d are from its report; those of myFM on
MovieLens 1M are from the one before, in elapsed time (`posterior.py` measures it there again).
"""

import json
from statistics import mean, median

from experiment import (
    RESULTS,
    Options,
    Result,
    Store,
    Task,
    figure,
    options,
    run_tasks,
    spread,
    table,
    write,
)
from recommenders import METHODS, METRICS, STAGES, fit

SETS = ("ml-100k", "ml-1m")
NAMES = {"rmse": "RMSE", "ndcg1": "nDCG@1", "ndcg5": "nDCG@5"}
RANK = 10  # rank of the peers, and of our machines with as many basis vectors
UNITS = {"ml-100k": 10, "ml-1m": 8}  # largest number of basis vectors in a search
ALPHAS, RATIO = 8, 0.1  # length of the path, its last alpha over its first
RIDGES = {"ml-100k": (1, 0.5), "ml-1m": (1,)}  # of the linear part, one path each
PENALTIES = {"ml-100k": ("l1/l2", "l1", "l1/linf"), "ml-1m": ("l1/l2",)}  # of the ordinal machine
FIRST_SEED = 20  # earlier splits were used to choose the grids
N_SPLITS = {"ml-100k": 5, "ml-1m": 2}
OURS, SEARCHED = "ordinal FM, default alpha", "ordinal FM, searched"
LAST = "ordinal FM of 5de635d, searched"

Results = list[tuple[Task, Result]]


def tasks(where: Options) -> list[Task]:
    return [task for name in SETS for task in tasks_of(name, where)]


def tasks_of(name: str, where: Options) -> list[Task]:
    """All tasks, interleaved: all methods on one split, then on the next."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + (1 if where.quick else N_SPLITS[name])):
        common = {"set": name, "seed": seed, "data": where.data}
        found += machines(name, common, where.quick)
        found += [{"method": "biases", "C": C, **common} for C in (2, 5, 10)]
        if "cmfrec ALS" in METHODS:
            found += [
                {"method": "cmfrec ALS", "units": RANK, "C": C, **common} for C in (5, 10, 20)
            ]
        rank = {"units": RANK, "iterations": 10 if where.quick else 200, **common}
        samplers = [method for method in METHODS if method.startswith("myFM")]
        found += [{"method": method, **rank} for method in samplers if name == "ml-100k"]
    return found


def machines(name: str, common: Task, quick: bool) -> list[Task]:
    """Our tasks: those with nothing chosen, and searches."""
    default = {"method": "default", "penalty": "l1/l2", "ridge": 1, **common}
    found = [
        {"machine": "ordinal FM", "units": 50, **default},
        {"machine": "ordinal FM", "units": RANK, **default},
        {"machine": "single-output FM", "units": RANK, **default},
    ]
    search = {
        "method": "search", "units": 4 if quick else UNITS[name], "alphas": 3 if quick else ALPHAS,
        "ratio": RATIO, **common,
    }  # fmt: skip
    kinds = [("ordinal FM", penalty) for penalty in PENALTIES[name]]
    for machine, penalty in (*kinds, ("single-output FM", "l1/l2")):
        found += [
            {"machine": machine, "penalty": penalty, "ridge": ridge, **search}
            for ridge in RIDGES[name]
        ]
    return found


def lines(name: str) -> dict[str, dict]:
    """The methods that are compared, and their settings."""
    rows = {}
    for units in (50, RANK):
        label = OURS if units == 50 else f"{OURS}, {units} vectors"
        rows[label] = {"method": "default", "machine": "ordinal FM", "units": units}
    for penalty in PENALTIES[name]:
        label = SEARCHED if penalty == "l1/l2" else f"{SEARCHED}, {penalty}"
        rows[label] = {"method": "search", "machine": "ordinal FM", "penalty": penalty}
    if len(PENALTIES[name]) > 1:
        rows[f"{SEARCHED}, all penalties"] = {"method": "search", "machine": "ordinal FM"}
    single = "single-output FM"
    rows[f"{single}, default alpha, {RANK} vectors"] = {"method": "default", "machine": single}
    rows[f"{single}, searched"] = {"method": "search", "machine": single}
    others = [
        method
        for method in METHODS
        if method not in ("default", "search") and (name == "ml-100k" or "myFM" not in method)
    ]
    return rows | {method: {"method": method} for method in others}


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "recsys_runs.json")
        report(where, run_tasks(fit, tasks(where), store, where.processes, "recsys"))


# ---- reporting ----------------------------------------------------------------------------------


def chosen(results: Results, metric: str, most: int | None = None) -> list[dict]:
    """The choice of validation for each seed: test value, units, seconds and strength."""
    sign = -1 if metric == "rmse" else 1
    by_seed: dict[int, list[dict]] = {}
    grids: dict[int, float] = {}
    for task, result in results:
        grids[task["seed"]] = grids.get(task["seed"], 0.0) + result["seconds"][-1]
        for i, units in enumerate(result["units"]):
            if most is None or units <= most:
                by_seed.setdefault(task["seed"], []).append(
                    {
                        "validation": result[f"validation_{metric}"][i],
                        "test": result[f"test_{metric}"][i],
                        "units": units,
                        "seconds": result["seconds"][i],
                        "strength": result["strength"][i],
                    }
                )
    return [
        max(by_seed[seed], key=lambda e: (sign * e["validation"], -e["units"]))
        | {"grid": round(grids[seed], 3)}
        for seed in sorted(by_seed)
    ]


def last_release(where: Options, name: str) -> dict[str, dict]:
    """Figures from the report of 5de635d, by measure, on the same splits."""
    path = RESULTS / "last_release.json"
    if where.data != "real" or not path.exists():
        return {}
    return json.loads(path.read_text())["recsys"][name]


def report(where: Options, results: Results) -> None:
    summary: dict[str, dict] = {}
    for name in SETS:
        summary[name] = {}
        for line, settings in lines(name).items():
            own = [
                (task, result)
                for task, result in results
                if task["set"] == name and all(task.get(key) == s for key, s in settings.items())
            ]
            stages = (
                [k for k in STAGES if k <= UNITS[name]] if own[0][0]["method"] == "search" else []
            )
            summary[name][line] = {
                "chosen": {metric: chosen(own, metric) for metric in METRICS},
                "curves": {metric: curve(own, metric, stages) for metric in METRICS},
            }
        for line, of_metrics in last_release(where, name).items():
            summary[name][line] = {"chosen": of_metrics, "curves": {m: {} for m in METRICS}}
    text = "Test part, mean ± standard deviation over the splits (median basis vectors)\n"
    for name, part in summary.items():
        rows = []
        for line, entry in part.items():
            cells = []
            for metric in METRICS:
                of_seeds = entry["chosen"][metric]
                units = round(median(e["units"] for e in of_seeds))
                cells.append(f"{spread((e['test'] for e in of_seeds), 4)} ({units})")
            by_rmse = entry["chosen"]["rmse"]
            grids = [e.get("grid") for e in by_rmse]
            grid = "" if None in grids else f"{median(grids):.1f}"
            rows.append([line, *cells, f"{median(e['seconds'] for e in by_rmse):.1f}", grid])
        text += f"\n{name}\n\n"
        text += table(["", *NAMES.values(), "seconds to it", "whole grid"], rows)
    write(where, "recsys", summary, text, draw(summary))


def curve(results: Results, metric: str, stages: list[int]) -> dict[int, float]:
    """Mean over the seeds of the test value for at most k basis vectors."""
    values = {}
    n_seeds = len({task["seed"] for task, _ in results})
    for k in stages:
        of_seeds = chosen(results, metric, most=k)
        if len(of_seeds) == n_seeds:
            values[k] = round(mean(e["test"] for e in of_seeds), 5)
    return values


def draw(summary: dict[str, dict]):
    picture, axes = figure(len(SETS), len(METRICS), 4.0, 3.2)
    labels = list(summary[SETS[0]])
    for row, (name, part) in zip(axes, summary.items(), strict=True):
        for axis, metric in zip(row, METRICS, strict=True):
            for line, entry in part.items():
                color, values = f"C{labels.index(line) % 10}", entry["curves"][metric]
                if values:
                    style = "--" if line.startswith("single") else "-"
                    axis.plot(
                        list(values), list(values.values()), style, marker=".", label=line,
                        color=color,
                    )  # fmt: skip
                else:
                    level = mean(e["test"] for e in entry["chosen"][metric])
                    style = "-." if labels.index(line) >= 10 else ":"
                    axis.axhline(level, ls=style, color=color, label=line)
            axis.set_title(name)
            axis.set_ylabel(NAMES[metric])
            axis.set_xlabel("basis vectors (at most)")
    handles, texts = axes[0, 0].get_legend_handles_labels()
    picture.legend(handles, texts, loc="outside lower center", ncols=4, fontsize="small")
    return picture


if __name__ == "__main__":
    main()
