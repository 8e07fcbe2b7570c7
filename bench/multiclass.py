"""Table 2 and the appendix' table of losses: accuracy and size of multi-class models.

50 / 25 / 25 splits; alpha (or C) and the number of units are chosen on the validation part, and the
test part is looked at once. Conditional gradient with output-layer and with full refitting, three
penalties, two losses; projected gradient from random vectors; one-vs-rest networks; and linear
logistic regression, the quadratic SVC, and logistic regression on all products of features.
"""

from collections.abc import Iterable
from itertools import product
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

SETS = ("segment", "vowel", "satimage", "letter")
UNITS = {"segment": 30, "vowel": 40, "satimage": 40, "letter": 150}
PER_CLASS = {"segment": 8, "vowel": 5, "satimage": 9, "letter": 6}  # one-vs-rest
PENALTIES = ("l1", "l1/l2", "l1/linf")
LOSSES = ("logistic", "squared_hinge")
REFITS = ("output", "full")
GRIDS = {
    "linear LR": (1, 10, 100),
    "quadratic SVC": (0.1, 1, 10, 100),
    "polynomial LR": (10, 100, 1000),
}
# Lean grids of alpha for l1/l2: values around the best ones of wider grids, on validation parts.
# The same model has a larger l1 norm and a smaller l1/linf norm.
ALPHAS = {
    ("segment", "logistic", "output"): (0.1, 0.3),
    ("segment", "logistic", "full"): (0.1, 0.3),
    ("segment", "squared_hinge", "output"): (0.3, 1),
    ("segment", "squared_hinge", "full"): (0.3, 1),
    ("vowel", "logistic", "output"): (0.03, 0.1),
    ("vowel", "logistic", "full"): (0.01, 0.03),
    ("vowel", "squared_hinge", "output"): (0.3, 1),
    ("vowel", "squared_hinge", "full"): (0.3, 1),
    ("satimage", "logistic", "output"): (0.3, 1),
    ("satimage", "logistic", "full"): (0.3, 1),
    ("satimage", "squared_hinge", "output"): (3, 9),
    ("satimage", "squared_hinge", "full"): (3, 9),
    ("letter", "logistic", "output"): (0.3,),
    ("letter", "logistic", "full"): (0.5,),
    ("letter", "squared_hinge", "output"): (1,),
    ("letter", "squared_hinge", "full"): (1,),
}
FACTORS = {"l1": 0.5, "l1/l2": 1, "l1/linf": 2}
OTHER_ALPHAS = {"segment": (0.1, 0.3), "vowel": (0.03, 0.1), "satimage": (0.3, 1), "letter": (0.3,)}
WIDE = (0.01, 0.03, 0.1, 0.3, 1, 3, 10)

Results = list[tuple[Task, Result]]


def seeds(name: str, where: Options, loss: str = "logistic") -> range:
    """Five splits; two where a fit is slow and only one table asks for it."""
    if where.quick:
        return range(1)
    return range(2 if name == "letter" and loss != "logistic" and not where.wide else 5)


def conditional_gradient_tasks(
    name: str,
    where: Options,
    penalties: Iterable[str] = PENALTIES,
    losses: Iterable[str] = LOSSES,
    refits: Iterable[str] = REFITS,
) -> list[Task]:
    """One task for every seed, penalty, loss, refit and alpha."""
    tasks = []
    for penalty, loss, refit in product(penalties, losses, refits):
        grid = (0.3,) if where.quick else WIDE if where.wide else ALPHAS[name, loss, refit]
        for alpha, seed in product(grid, seeds(name, where, loss)):
            tasks.append(
                {
                    "method": "conditional gradient", "refit": refit, "penalty": penalty,
                    "loss": loss, "alpha": round(alpha * FACTORS[penalty], 4),
                    "units": 6 if where.quick else UNITS[name],
                    "set": name, "seed": seed, "data": where.data,
                }
            )  # fmt: skip
    return tasks


def other_tasks(name: str, where: Options) -> list[Task]:
    """Projected gradient, one-vs-rest and scikit-learn's."""
    tasks = []
    grid = (0.3,) if where.quick else WIDE if where.wide else OTHER_ALPHAS[name]
    for seed in seeds(name, where):
        common = {"set": name, "seed": seed, "data": where.data}
        for alpha in grid:
            tasks.append(
                {"method": "one-vs-rest", "alpha": alpha, "units": PER_CLASS[name], **common}
            )
            tasks.append(
                {
                    "method": "projected gradient", "penalty": "l1/l2", "loss": "logistic",
                    "alpha": alpha, "units": 6 if where.quick else UNITS[name], "steps": 500,
                    **common,
                }
            )  # fmt: skip
        for method, strengths in GRIDS.items():
            tasks += [{"method": method, "C": C, **common} for C in strengths]
    return tasks


def all_tasks(where: Options) -> list[Task]:
    tasks = []
    for loss in LOSSES:
        for name in SETS:
            tasks += conditional_gradient_tasks(name, where, losses=[loss])
    return tasks + [task for name in SETS for task in other_tasks(name, where)]


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "classifier_runs.json")
        report(where, run_tasks(fit, all_tasks(where), store, where.processes, "multiclass"))


def chosen(results: Results, name: str, **settings: str) -> list[dict]:
    """What validation chooses among the results with these settings, one entry a seed."""
    by_seed: dict[int, Results] = {}
    for task, result in results:
        if task["set"] == name and all(task.get(key) == s for key, s in settings.items()):
            by_seed.setdefault(task["seed"], []).append((task, result))
    return [best(by_seed[seed]) | {"seed": seed} for seed in sorted(by_seed)]


def variants() -> dict[str, dict[str, str]]:
    """The rows of the table."""
    rows = {
        f"{refit} refit, {penalty}": {
            "method": "conditional gradient", "refit": refit, "penalty": penalty, "loss": "logistic"
        }
        for refit, penalty in product(REFITS, PENALTIES)
    }  # fmt: skip
    rows["best network (by validation)"] = {"method": "conditional gradient"}
    for method in ("projected gradient", "one-vs-rest", *GRIDS):
        rows[method] = {"method": method}
    return rows


def report(where: Options, results: Results) -> None:
    summary = {
        name: {row: chosen(results, name, **settings) for row, settings in variants().items()}
        for name in SETS
    }
    for name, refit, penalty in product(SETS, REFITS, PENALTIES):
        hinge = {"refit": refit, "penalty": penalty, "loss": "squared_hinge"}
        summary[name][f"{refit} refit, {penalty}, squared hinge"] = chosen(results, name, **hinge)
    text = "Test accuracy in percent, mean ± standard deviation over the splits (median units)\n\n"
    text += table(
        ["", *SETS], [[row, *(cell(summary[name][row]) for name in SETS)] for row in variants()]
    )
    text += "\nMultinomial logistic (ML) and multi-class squared hinge (MSH) loss\n\n"
    header = ["", *(f"{name}, {refit}" for refit in reversed(REFITS) for name in SETS)]
    rows = []
    for penalty, loss in product(PENALTIES, reversed(LOSSES)):
        settings = {"penalty": penalty, "loss": loss, "method": "conditional gradient"}
        cells = (
            cell(chosen(results, name, refit=refit, **settings))
            for refit in reversed(REFITS)
            for name in SETS
        )
        rows.append([f"{penalty}, {'ML' if loss == 'logistic' else 'MSH'}", *cells])
    text += table(header, rows)
    text += "\nCosts: seconds for the chosen model / for its whole grid; milliseconds to predict "
    text += "the test part; parameters (medians)\n\n"
    text += table(
        ["", *SETS], [[row, *(costs(summary[name][row]) for name in SETS)] for row in variants()]
    )
    write(where, "multiclass", summary, text, draw(summary))


def cell(entries: list[dict]) -> str:
    units = round(median(entry["units"] for entry in entries))
    return spread(entry["test"] for entry in entries) + (f" ({units})" if units else "")


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
    picture, axes = figure(1, len(SETS), 3.4, 3.6)
    rows = list(variants())
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
