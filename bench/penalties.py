"""Figure 3: test accuracy against the number of basis vectors, for three penalties.

alpha is chosen by validation log-loss for every number of basis vectors. The networks are compared
with linear logistic regression, the quadratic SVC (with any number of support vectors), and as many
Nystroem features of the same kernel as basis vectors. The fits are those of `multiclass.py`, and
are shared with it.
"""

from statistics import mean

import multiclass
from classifiers import best, fit
from experiment import Options, Result, Store, Task, figure, options, run_tasks, table, write

SETS = ("vowel", "letter", "segment", "satimage")
STAGES = (*range(1, 11), 12, *range(15, 50, 5), *range(50, 151, 10))  # looked at
SHOWN = (5, 10, 15, 20, 30, 40, 50, 70, 100, 120, 150)
METHODS = ("path", "linear LR", "quadratic SVC", "Nystroem")


def tasks(where: Options) -> list[Task]:
    """The tasks of the networks and of the methods that they are compared with."""
    return [
        task
        for task in multiclass.all_tasks(where)
        if task["set"] in SETS and task["method"] in METHODS and task.get("activation") != "FM"
    ]


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "classifier_runs.json")
        report(where, run_tasks(fit, tasks(where), store, where.processes, "penalties"))


def curve(results: list[tuple[Task, Result]], most: int) -> dict[int, float]:
    """Mean test accuracy for at most k units, k up to `most`, chosen on validation for every k."""
    seeds = {task["seed"] for task, _ in results}
    answer = {}
    for k in (k for k in STAGES if k <= most):
        fitting = [
            [(task, r) for task, r in results if task["seed"] == seed and min(r["units"]) <= k]
            for seed in seeds
        ]
        if all(fitting):
            answer[k] = mean(best(of_seed, most=k)["test"] for of_seed in fitting)
    return answer


def report(where: Options, results: list[tuple[Task, Result]]) -> None:
    summary: dict[str, dict] = {}
    for name in SETS:
        here = [(task, result) for task, result in results if task["set"] == name]
        most = max(max(r["units"]) for t, r in here if t["method"] == "path")
        curves = {
            penalty: curve([(t, r) for t, r in here if t.get("penalty") == penalty], most)
            for penalty in multiclass.PENALTIES
        }
        curves["Nystroem"] = curve([(t, r) for t, r in here if t["method"] == "Nystroem"], most)
        levels = {
            method: mean(e["test"] for e in multiclass.chosen(results, name, method=method))
            for method in ("linear LR", "quadratic SVC")
        }
        summary[name] = {"curves": curves, "levels": levels}
    text = "Mean test accuracy (%) by the largest number of basis vectors\n"
    for name, part in summary.items():
        columns = [k for k in SHOWN if k <= multiclass.UNITS[name]]
        rows = [
            [label, *(f"{c[k]:.2f}" if k in c else "" for k in columns)]
            for label, c in part["curves"].items()
        ]
        rows += [[label, *[f"{v:.2f}"] * len(columns)] for label, v in part["levels"].items()]
        text += f"\n{name}\n\n" + table(["", *columns], rows)
    write(where, "penalties", summary, text, draw(summary))


def draw(summary: dict[str, dict]):
    picture, axes = figure(2, 2)
    labels = {"l1": "$l_1$", "l1/l2": "$l_1/l_2$", "l1/linf": r"$l_1/l_\infty$"}
    for axis, (name, part) in zip(axes.flat, summary.items(), strict=True):
        for label, c in part["curves"].items():
            style = ":" if label == "Nystroem" else "-"
            axis.plot(list(c), list(c.values()), style, marker=".", label=labels.get(label, label))
        for style, (label, level) in zip(("--", "-."), part["levels"].items(), strict=True):
            axis.axhline(level, ls=style, color="gray", label=label)
        floor = min(part["levels"]["linear LR"], part["levels"]["quadratic SVC"]) - 15
        axis.set_ylim(bottom=max(floor, 0))
        axis.set_title(name)
        axis.set_xlabel("basis vectors (at most)")
        axis.set_ylabel("test accuracy (%)")
    axes[0, 0].legend(fontsize="small", loc="lower right")
    return picture


if __name__ == "__main__":
    main()
