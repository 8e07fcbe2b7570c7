"""Figure 4: recommending as ordinal regression, RMSE and nDCG against the number of basis vectors.

MovieLens, one-hot users and items, 50 / 25 / 25 splits. Multi-output ordinal factorization machines
with three penalties against single-output regression (factorization machine, polynomial network),
with lower-order terms as in the paper (a constant feature); and both kinds of machines with an
explicit linear part and full refitting. Beside them user and item biases (ridge), myFM and cmfrec,
where these are installed. Settings are chosen on the validation part, for every measure and number
of basis vectors. nDCG is the mean over users, with gain 2^rating - 1.
"""

from itertools import product
from statistics import mean, median

from experiment import (
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
UNITS = {"ml-100k": 40, "ml-1m": 25}
PENALTIES = ("l1", "l1/l2", "l1/linf")
# Methods and penalties of the paper's figure; with one output all penalties are the same.
PAPER = (
    *(("ordinal FM", penalty) for penalty in PENALTIES),
    ("single-output FM", "l1/l2"),
    ("single-output PN", "l1/l2"),
)
NAMES = {"rmse": "RMSE", "ndcg1": "nDCG@1", "ndcg5": "nDCG@5"}
# alphas with a constant feature (output refit), alphas with a linear part (full refit); the ridge
# of the linear part
GRIDS = {"ml-100k": ((10, 20, 50), (2.5, 3, 3.5, 5, 8), (0.6, 1, 2)), "ml-1m": ((30,), (3,), (1,))}
QUICK = ((3,), (3,), (1,))
WIDE = ((3, 5, 10, 20, 50), (2, 3, 5, 8), (0.5, 1, 2))
FIRST_SEED = 20  # earlier splits were looked at while the grids were chosen

Results = list[tuple[Task, Result]]


def tasks(where: Options) -> list[Task]:
    return [task for name in SETS for task in tasks_of(name, where)]


def tasks_of(name: str, where: Options) -> list[Task]:
    found = []
    units = 4 if where.quick else UNITS[name]
    constant, explicit, ridges = QUICK if where.quick else WIDE if where.wide else GRIDS[name]
    n_seeds = 1 if where.quick else 5 if name == "ml-100k" else 2
    for seed in range(FIRST_SEED, FIRST_SEED + n_seeds):
        common = {"set": name, "seed": seed, "data": where.data}
        paper = {"lower": "augment", "refit": "output", "units": units, **common}
        found += [
            {"method": method, "penalty": penalty, "alpha": alpha, **paper}
            for (method, penalty), alpha in product(PAPER, constant)
        ]
        linear = {"lower": "explicit", "refit": "full", "units": min(units, 15), **common}
        found += [
            {"method": method, "penalty": "l1/l2", "alpha": alpha, "alpha_linear": ridge, **linear}
            for method, alpha, ridge in product(
                ("ordinal FM", "single-output FM"), explicit, ridges
            )
        ]
        found += [{"method": "biases", "C": C, **common} for C in (2, 5, 10)]
        rank = {"units": 10, "iterations": 10 if where.quick else 200, **common}
        found += [{"method": method, **rank} for method in METHODS if method.startswith("myFM")]
        if "cmfrec ALS" in METHODS:
            found += [{"method": "cmfrec ALS", "units": 10, "C": C, **common} for C in (5, 10, 20)]
    return found


def lines() -> dict[str, dict]:
    """What is compared, and the settings that belong to it."""
    rows = {}
    for method, penalty in PAPER:
        label = f"ordinal FM, {penalty}" if method == "ordinal FM" else method
        rows[label] = {"method": method, "penalty": penalty, "lower": "augment"}
    for method in ("ordinal FM", "single-output FM"):
        rows[f"{method}, linear part"] = {"method": method, "lower": "explicit"}
    others = [method for method in METHODS if method not in dict(PAPER)]
    return rows | {method: {"method": method} for method in others}


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "recsys_runs.json")
        report(where, run_tasks(fit, tasks(where), store, where.processes, "recsys"))


def chosen(results: Results, metric: str, most: int | None = None) -> list[dict]:
    """What validation chooses, for each seed: value on the test part, units, seconds, strength."""
    sign = -1 if metric == "rmse" else 1
    by_seed: dict[int, list[dict]] = {}
    for task, result in results:
        for i, units in enumerate(result["units"]):
            if most is None or units <= most:
                by_seed.setdefault(task["seed"], []).append(
                    {
                        "validation": result[f"validation_{metric}"][i],
                        "test": result[f"test_{metric}"][i],
                        "units": units,
                        "seconds": result["seconds"][i],
                        "strength": task.get("alpha", task.get("C")),
                    }
                )
    return [
        max(by_seed[seed], key=lambda e: (sign * e["validation"], -e["units"]))
        for seed in sorted(by_seed)
    ]


def report(where: Options, results: Results) -> None:
    summary: dict[str, dict] = {}
    for name in SETS:
        summary[name] = {}
        for line, settings in lines().items():
            own = [
                (task, result)
                for task, result in results
                if task["set"] == name and all(task.get(key) == s for key, s in settings.items())
            ]
            stages = [k for k in STAGES if k <= UNITS[name]] if "lower" in own[0][0] else []
            summary[name][line] = {
                "chosen": {metric: chosen(own, metric) for metric in METRICS},
                "curves": {metric: curve(own, metric, stages) for metric in METRICS},
            }
    text = "Test part, mean ± standard deviation over the splits (median basis vectors)\n"
    for name, part in summary.items():
        rows = []
        for line, entry in part.items():
            cells = []
            for metric in METRICS:
                of_seeds = entry["chosen"][metric]
                units = round(median(e["units"] for e in of_seeds))
                cells.append(f"{spread((e['test'] for e in of_seeds), 4)} ({units})")
            seconds = median(e["seconds"] for e in entry["chosen"]["rmse"])
            rows.append([line, *cells, f"{seconds:.1f}"])
        text += f"\n{name}\n\n" + table(["", *NAMES.values(), "seconds (one fit)"], rows)
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
    for row, (name, part) in zip(axes, summary.items(), strict=True):
        for axis, metric in zip(row, METRICS, strict=True):
            for i, (line, entry) in enumerate(part.items()):
                values = entry["curves"][metric]
                if values:
                    style = "--" if line.startswith("single") else "-"
                    axis.plot(list(values), list(values.values()), style, marker=".", label=line)
                else:
                    level = mean(e["test"] for e in entry["chosen"][metric])
                    color = f"C{i}" if i < 10 else "black"
                    axis.axhline(level, ls=":", color=color, label=line)
            if metric == "rmse":
                axis.set_ylim(top=1.02)
            else:  # the first basis vector alone ranks far worse than all the rest
                axis.set_ylim(bottom=0.69 if name == "ml-100k" else 0.73)
            axis.set_title(name)
            axis.set_ylabel(NAMES[metric])
            axis.set_xlabel("basis vectors (at most)")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=4, fontsize="small")
    return picture


if __name__ == "__main__":
    main()
