"""Table 2: accuracy, log-loss, size and cost of multi-class models.

Splits are 50 / 25 / 25. Every method is fitted on the training part. Alpha (or C) and the number of
units are those with the lowest validation log-loss, or the best accuracy for the SVC, which has no
probabilities. The test part is used once. Ours are the estimators as users have them, on the
default path of alphas of `PathSearchCV`, with three penalties, with and without standard units, and
with two ridges on the linear part; and also with nothing chosen at all. The rivals are logistic
regression on all products of features, the quadratic SVC, Nystroem's features, and linear logistic
regression; and, as in the paper, one network per class, and projected gradient from random vectors.
Seconds are CPU seconds of one thread, with all methods interleaved.
"""

from statistics import mean, median

from classifiers import best, fit
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

SETS = ("segment", "vowel", "satimage", "digits", "letter")
UNITS = {"segment": 50, "vowel": 50, "satimage": 50, "digits": 150, "letter": 150}  # at most
PER_CLASS = {"segment": 8, "vowel": 5, "satimage": 9, "digits": 8, "letter": 6}  # one-vs-rest
PENALTIES = ("l1", "l1/l2", "l1/linf")
# Standard units or LIBSVM's scaling, and the ridge on the linear part. Each pair has its own path.
# The default penalty has all of them, the others have the first two. letter, where a path takes
# long, has only the first, which are the defaults.
SETTINGS = ((True, 1), (True, 0.1), (False, 0.01))
GRIDS = {
    "linear LR": (1, 10, 100),
    "quadratic SVC": (0.01, 0.1, 1, 10, 100),
    "polynomial LR": (0.1, 1, 10, 100, 1000),
}
NYSTROEM_C = (1, 10, 100)
NYSTROEM_SIZES = (10, 30, 50, 150)
# Settings of the paper's algorithms, which use unscaled features and a constant feature.
PAPER_ALPHAS = (0.1, 0.5)
N_SPLITS = 5
BEST = "best network (by validation)"
DEFAULT = "network, default alpha"

Results = list[tuple[Task, Result]]


def seeds(where: Options) -> range:
    return range(1 if where.quick else N_SPLITS)


def path_tasks(name: str, seed: int, where: Options) -> list[Task]:
    """Three penalties of the network, and the factorization machine: paths of alphas."""
    units = 6 if where.quick else UNITS[name]
    return [
        {"method": "path", "activation": activation, "penalty": penalty, "units": units,
         "standardize": standardize, "ridge": ridge, **common(name, seed, where)}
        for activation, penalty, n_settings in (
            ("PN", "l1/l2", 3), ("FM", "l1/l2", 2), ("PN", "l1", 2), ("PN", "l1/linf", 2)
        )
        for standardize, ridge in SETTINGS[: 1 if name == "letter" else n_settings]
    ]  # fmt: skip


def common(name: str, seed: int, where: Options) -> Task:
    return {"set": name, "seed": seed, "data": where.data}


def other_tasks(name: str, seed: int, where: Options) -> list[Task]:
    """The tasks with nothing chosen, those of scikit-learn, and those of the paper."""
    here = common(name, seed, where)
    units = 6 if where.quick else UNITS[name]
    tasks = [{"method": "default", "activation": "PN", **here}]
    for method, strengths in GRIDS.items():
        tasks += [{"method": method, "C": C, **here} for C in strengths]
    sizes = [k for k in NYSTROEM_SIZES if k <= max(units, 10)]
    tasks += [{"method": "Nystroem", "C": C, "sizes": sizes, **here} for C in NYSTROEM_C]
    for alpha in PAPER_ALPHAS:
        tasks.append({"method": "one-vs-rest", "alpha": alpha, "units": PER_CLASS[name], **here})
        tasks.append(
            {"method": "projected gradient", "penalty": "l1/l2", "alpha": alpha, "units": units,
             "steps": 500, **here}
        )  # fmt: skip
    return tasks


def all_tasks(where: Options) -> list[Task]:
    """All tasks, interleaved: all methods on one split, then on the next."""
    return [
        task
        for name in SETS
        for seed in seeds(where)
        for task in (*path_tasks(name, seed, where), *other_tasks(name, seed, where))
    ]


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "classifier_runs.json")
        report(where, run_tasks(fit, all_tasks(where), store, where.processes, "multiclass"))


# ---- reporting ----------------------------------------------------------------------------------


def lines() -> dict[str, dict[str, str]]:
    """The rows of the tables, and the settings that belong to them."""
    rows = {
        f"network, {penalty}": {"method": "path", "activation": "PN", "penalty": penalty}
        for penalty in PENALTIES
    }
    rows[BEST] = {"method": "path", "activation": "PN"}
    rows["machine, l1/l2"] = {"method": "path", "activation": "FM"}
    rows[DEFAULT] = {"method": "default"}
    others = ("polynomial LR", "quadratic SVC", "Nystroem", "linear LR")
    return rows | {
        method: {"method": method} for method in (*others, "one-vs-rest", "projected gradient")
    }


def chosen(results: Results, name: str, **settings: str) -> list[dict]:
    """The choice of validation among the results with these settings, one entry per seed."""
    by_seed: dict[int, Results] = {}
    for task, result in results:
        if task["set"] == name and all(task.get(key) == s for key, s in settings.items()):
            by_seed.setdefault(task["seed"], []).append((task, result))
    return [best(by_seed[seed]) | {"seed": seed} for seed in sorted(by_seed)]


def report(where: Options, results: Results) -> None:
    summary = {
        name: {row: chosen(results, name, **settings) for row, settings in lines().items()}
        for name in SETS
    }

    def grid(cell) -> str:
        rows = [[row, *(cell(summary[name][row]) for name in SETS)] for row in lines()]
        return table(["", *SETS], rows)

    text = "Test accuracy in percent, mean ± standard deviation over the splits (median units)\n\n"
    text += grid(accuracy)
    text += "\nTest log-loss\n\n" + grid(losses)
    text += f"\n{BEST} minus others, points of accuracy, split by split\n\n"
    rivals = ("polynomial LR", "quadratic SVC", "Nystroem")
    rows = [[rival, *(gain(summary[name], rival) for name in SETS)] for rival in rivals]
    text += table(["", *SETS], rows)
    text += "\nCosts: CPU seconds for the chosen model / for its whole grid; milliseconds to "
    text += "predict the test part; parameters (medians)\n\n" + grid(costs)
    write(where, "multiclass", summary, text, draw(summary))


def accuracy(entries: list[dict]) -> str:
    units = round(median(entry["units"] for entry in entries))
    return spread(entry["test"] for entry in entries) + (f" ({units})" if units else "")


def losses(entries: list[dict]) -> str:
    values = [entry["test_loss"] for entry in entries]
    return "" if None in values else spread(values, 3)


def gain(methods: dict[str, list[dict]], rival: str) -> str:
    pairs = zip(methods[BEST], methods[rival], strict=True)
    return spread(ours["test"] - theirs["test"] for ours, theirs in pairs)


def costs(entries: list[dict]) -> str:
    middle = {
        key: median(entry[key] for entry in entries)
        for key in ("seconds", "grid", "predict", "parameters")
    }
    return (
        f"{middle['seconds']:.2f} / {middle['grid']:.1f} s; {1e3 * middle['predict']:.1f} ms; "
        f"{middle['parameters']:.0f}"
    )


def draw(summary: dict[str, dict[str, list[dict]]]):
    picture, axes = figure(1, len(SETS), 3.0, 3.6)
    rows = list(lines())
    for axis, name in zip(axes[0], SETS, strict=True):
        for y, row in enumerate(reversed(rows)):
            values = [entry["test"] for entry in summary[name][row]]
            axis.plot(values, [y] * len(values), "o", color="C0", alpha=0.35, ms=4)
            axis.plot(mean(values), y, "|", color="C3", ms=14, mew=2)
        axis.set_title(name)
        axis.set_xlabel("test accuracy (%)")
        axis.set_yticks(range(len(rows)), rows[::-1] if axis is axes[0, 0] else [])
        axis.grid(axis="y", alpha=0.2)
    return picture


if __name__ == "__main__":
    main()
