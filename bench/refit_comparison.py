"""Figure 5: refitting the output layer alone against refitting both layers.

It plots the objective (logistic loss, l1/l2, alpha = 0.1) relative to the best one seen, and the
accuracy on the test part, against the number of basis vectors. There is one split, and alpha is
that of the paper.
"""

import numpy as np
from experiment import (
    Options,
    Result,
    Store,
    Task,
    figure,
    load,
    options,
    run_tasks,
    split,
    table,
    write,
)

from fastpoly import Design, conditional_gradient

UNITS = {"segment": 50, "vowel": 40, "satimage": 50, "letter": 60}
ALPHA = 0.1


def tasks(where: Options) -> list[Task]:
    return [
        {
            "set": name,
            "seed": 0,
            "refit": refit,
            "units": 5 if where.quick else units * (2 if where.wide else 1),
            "alpha": ALPHA,
            "data": where.data,
        }
        for name, units in reversed(UNITS.items())
        for refit in ("full", "output")
    ]


def run(task: Task) -> Result:
    """Objective, accuracy and seconds after every round: one basis vector, or a block ("full")."""
    data = load(task["set"], task["data"])
    parts = split(len(data.X), task["seed"])
    design = Design(data.X[parts.train], "squared", fit_lower="augment", n_threads=1)
    test = Design(data.X[parts.test], "squared", fit_lower="augment", n_threads=1)
    curves: Result = {name: [] for name in ("units", "objective", "accuracy", "seconds")}
    fit = conditional_gradient(
        design, data.y[parts.train], penalty="l1/l2", alpha=task["alpha"], refit=task["refit"],
        n_components=task["units"], n_outputs=data.m, random_state=task["seed"],
    )  # fmt: skip
    for state in fit:
        if state.n_components:
            labels = test.outputs(state.H, state.V).argmax(axis=1)
            accuracy = 100 * float((labels == data.y[parts.test]).mean())
            curves["units"].append(state.n_components)
            curves["objective"].append(round(state.objective, 4))
            curves["accuracy"].append(round(accuracy, 3))
            curves["seconds"].append(round(sum(state.timings.values()), 3))
    return curves


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "refit_comparison_runs.json")
        results = run_tasks(run, tasks(where), store, where.processes, "refit comparison")
        report(where, {(task["set"], task["refit"]): result for task, result in results})


def report(where: Options, curves: dict[tuple[str, str], Result]) -> None:
    rows, summary = [], {}
    picture, axes = figure(2, len(UNITS), 3.2, 2.6)
    for column, name in enumerate(UNITS):
        least = min(min(curves[name, refit]["objective"]) for refit in ("output", "full"))
        for refit, style in (("output", "--"), ("full", "-")):
            curve = curves[name, refit]
            excess = np.array(curve["objective"]) / least - 1
            axes[0, column].plot(curve["units"], np.maximum(excess, 1e-4), style, label=refit)
            axes[1, column].plot(curve["units"], curve["accuracy"], style, label=refit)
            last = {key: curve[key][-1] for key in ("units", "objective", "accuracy", "seconds")}
            last["best_accuracy"] = max(curve["accuracy"])
            summary[f"{name}, {refit}"] = last
            rows.append(
                [name, refit, last["units"], f"{last['objective']:.1f}", f"{last['accuracy']:.2f}",
                 f"{last['seconds']:.1f}"]
            )  # fmt: skip
        axes[0, column].set_yscale("log")
        axes[0, column].set_title(name)
        axes[1, column].set_xlabel("basis vectors")
    axes[0, 0].set_ylabel("objective above the best (share)")
    axes[1, 0].set_ylabel("test accuracy (%)")
    axes[1, -1].legend(title="refit")
    header = ["", "refit", "units", "objective", "test accuracy", "seconds"]
    write(where, "refit_comparison", summary, table(header, rows), picture)


if __name__ == "__main__":
    main()
