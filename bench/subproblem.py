"""Figure 2: how close the selection methods come to the best basis vector, along real fits.

Along a fit with the l1/linf penalty, every method looks for the basis vector with the largest sum
of |h' Gamma_c h| over the outputs; "exact" tries all signs and finds it. The factor nu-hat is a
method's value over the exact one. Random methods draw new vectors in every iteration.
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

from fastpoly import Design, conditional_gradient, select_basis
from fastpoly.kernels.losses import get_loss

SETS = ("segment", "vowel", "satimage")
LABELS = {
    "refine": "$l_1$ init + refine",
    "random+refine": "random init + refine",
    "l1": "$l_1$ init",
    "random": "random init",
    "best_data": "best data",
}
ALPHA = 0.3
PENALTY = "l1/linf"


def tasks(where: Options) -> list[Task]:
    seeds = range(1 if where.quick else 5 if where.wide else 2)
    units = 3 if where.quick else 50 if where.wide else 30
    return [
        {"set": name, "seed": seed, "units": units, "alpha": ALPHA, "data": where.data}
        for name in SETS
        for seed in seeds
    ]


def run(task: Task) -> Result:
    """nu-hat of every method, in every iteration of a fit."""
    data = load(task["set"], task["data"])
    train = split(len(data.X), task["seed"]).train
    design = Design(data.X[train], "squared", fit_lower="augment", n_threads=1)
    loss = get_loss("multiclass_logistic")
    Y = loss.encode(data.y[train], data.m)
    rng = np.random.default_rng(task["seed"])
    factors: Result = {name: [] for name in LABELS}
    fit = conditional_gradient(
        design, data.y[train], penalty=PENALTY, alpha=task["alpha"], n_outputs=data.m,
        n_components=task["units"], random_state=task["seed"], block=1, refit="output",
    )  # fmt: skip
    for state in fit:
        _, D = loss.value_grad(Y, design.outputs(state.H, state.V))
        gamma = design.gamma(D)
        best = select_basis(gamma, PENALTY, "exact").value
        for name, values in factors.items():
            found = select_basis(gamma, PENALTY, name, data=design, random_state=rng)
            values.append(round(found.value / best, 5))
    return factors


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "subproblem_runs.json")
        results = run_tasks(run, tasks(where), store, where.processes, "subproblem")
        factors = {
            name: {
                method: np.concatenate([r[method] for t, r in results if t["set"] == name])
                for method in LABELS
            }
            for name in SETS
        }
        report(where, factors)


def report(where: Options, factors: dict[str, dict[str, np.ndarray]]) -> None:
    rows, summary = [], {}
    for name, methods in factors.items():
        summary[name] = {
            method: {"median": float(np.median(values)), "least": float(values.min())}
            for method, values in methods.items()
        }
        cells = (f"{s['median']:.3f} ({s['least']:.3f})" for s in summary[name].values())
        rows.append([name, *cells])
    text = "nu-hat: median (least) over the iterations of the fits\n\n"
    text += table(["", *(LABELS[m].replace("$l_1$", "l1") for m in LABELS)], rows)
    picture, axes = figure(1, len(SETS), 3.4, 3.0)
    for axis, (name, methods) in zip(axes[0], factors.items(), strict=True):
        parts = axis.boxplot(list(methods.values())[::-1], orientation="horizontal", whis=(0, 100))
        for line in parts["medians"]:
            line.set_color("C3")
        axis.set_title(name)
        axis.set_xlim(0, 1.02)
        axis.set_xlabel(r"$\hat\nu$")
        axis.set_yticks(range(1, len(LABELS) + 1), list(LABELS.values())[::-1])
        if axis is not axes[0, 0]:
            axis.set_yticklabels([])
    write(where, "subproblem", summary, text, picture)


if __name__ == "__main__":
    main()
