"""The l1 penalty, judged by a conic solver: with it, training is a convex problem of m matrices.

A model with unit vectors h_r has the outputs o_c = x' A_c x with A_c = sum_r V_rc h_r h_r' (squared
activation), or 1/2 (x' A_c x - sum_i A_cii x_i^2) (ANOVA), and the smallest l1 norm of V for given
matrices is the sum of their nuclear norms. cvxpy minimizes over the matrices; fastpoly must reach
the same objective. A claim of optimality is false if its objective is more than 2 tol above the
optimum: half for the basis vectors, half for the refit. In the constrained form its `gap` must also
be an upper bound, and the constraint hold.

The problems are random and small.
"""

import argparse
from time import process_time

import cvxpy as cp
import numpy as np
from experiment import Options, Result, Store, Task, options, run_tasks, table, write

from fastpoly import Design, alpha_max, conditional_gradient

ACTIVATIONS = ("squared", "anova")
FORMS = ("alpha", "tau")
LOSSES = (
    "squared", "huber", "poisson", "binary_logistic", "binary_squared_hinge",
    "multiclass_logistic", "multiclass_squared_hinge",
)  # fmt: skip
TOL = 1e-3


def targets(loss: str, n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    if loss.startswith("multiclass"):
        return rng.permutation(np.arange(n) % m)
    if loss.startswith("binary"):
        return rng.choice([-1.0, 1.0], (n, m))
    return rng.poisson(2.0, (n, m)).astype(float) if loss == "poisson" else rng.normal(size=(n, m))


def convex_loss(loss: str, y: np.ndarray, O: cp.Expression) -> cp.Expression:
    """The loss of the outputs O (n, m), a sum over the rows, as cvxpy has it."""
    if loss.startswith("multiclass"):
        own = cp.sum(cp.multiply(np.eye(O.shape[1])[y], O), axis=1)
        if loss == "multiclass_logistic":
            return cp.sum(cp.log_sum_exp(O, axis=1) - own)
        margins = 1 + O - cp.reshape(own, (len(y), 1), order="C")
        return cp.sum_squares(cp.multiply(1 - np.eye(O.shape[1])[y], cp.pos(margins)))
    return {
        "squared": lambda: cp.sum_squares(O - y) / 2,
        "huber": lambda: cp.sum(cp.huber(O - y)) / 2,
        "poisson": lambda: (
            cp.sum(cp.exp(O) - cp.multiply(y, O)) + (y * np.log(np.maximum(y, 1)) - y).sum()
        ),
        "binary_logistic": lambda: cp.sum(cp.logistic(-cp.multiply(y, O))),
        "binary_squared_hinge": lambda: cp.sum_squares(cp.pos(1 - cp.multiply(y, O))),
    }[loss]()


def optimum(task: Task, X: np.ndarray, y: np.ndarray, m: int, strength: float) -> float:
    """The least objective over m symmetric matrices (d, d)."""
    n, d = X.shape
    products = X[:, :, None] * X[:, None, :]
    if task["activation"] == "anova":
        products = products * (1 - np.eye(d)) / 2
    A = [cp.Variable((d, d), symmetric=True) for _ in range(m)]
    flat = [cp.reshape(products.reshape(n, -1) @ cp.vec(M, order="C"), (n, 1), "C") for M in A]
    loss, size = convex_loss(task["loss"], y, cp.hstack(flat)), sum(cp.normNuc(M) for M in A)
    if task["form"] == "alpha":
        problem = cp.Problem(cp.Minimize(loss + strength * size))
    else:
        problem = cp.Problem(cp.Minimize(loss), [size <= strength])
    return float(problem.solve(solver=cp.CLARABEL))


def run(task: Task) -> Result:
    rng = np.random.default_rng(task["seed"])
    n, d = int(rng.integers(8, 30)), int(rng.integers(2, 7))
    m = int(rng.integers(2, 5))
    X = rng.standard_normal((n, d)) / np.sqrt(d)
    y = targets(task["loss"], n, m, rng)
    design = Design(X, task["activation"], n_threads=1)
    options = {"loss": task["loss"], "penalty": "l1"}
    strength = float(rng.uniform(0.05, 0.8)) * alpha_max(design, y, **options)
    if task["form"] == "tau":
        strength = float(rng.uniform(0.5, 20))
    options |= {task["form"]: strength, "tol": TOL, "n_components": 500, "random_state": 0}
    begun = process_time()
    *_, state = conditional_gradient(design, y, **options)
    seconds = process_time() - begun
    best = optimum(task, X, y, m, strength)
    return {
        "stop": state.stop, "seconds": seconds, "excess": (state.objective - best) / best,
        "gap": float(state.gap) / best, "size": state.penalty / strength,
    }  # fmt: skip


def is_false(result: Result, form: str) -> bool:
    """Whether something that the fit claims does not hold, beyond the solver's own accuracy."""
    above = result["stop"] == "optimal" and result["excess"] > 2 * TOL
    if form == "tau":
        above |= result["excess"] > result["gap"] + 1e-6 or result["size"] > 1 + 1e-9
    return above or result["excess"] < -1e-6


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--problems", type=int, default=20)  # of each kind; stored ones are kept
    own, rest = parser.parse_known_args(argv)
    with options(__doc__, rest) as where:
        tasks = [
            {"activation": activation, "form": form, "loss": loss, "seed": seed}
            for seed in range(1 if where.quick else own.problems)
            for activation in ACTIVATIONS
            for form in FORMS
            for loss in LOSSES
        ]
        store = Store(where.results / "nuclear_runs.json")
        report(where, run_tasks(run, tasks, store, where.processes, "nuclear"))


def report(where: Options, results: list[tuple[Task, Result]]) -> None:
    groups: dict[tuple[str, ...], list[Result]] = {}
    for task, result in results:
        groups.setdefault((task["loss"], task["activation"], task["form"]), []).append(result)
    rows = [
        [
            *group, len(runs), sum(run["stop"] == "optimal" for run in runs),
            sum(is_false(run, group[2]) for run in runs),
            f"{max(run['excess'] for run in runs):.1e}",
        ]
        for group, runs in sorted(groups.items())
    ]  # fmt: skip
    header = ["loss", "activation", "form", "problems", "optimal", "false", "worst excess"]
    summary = [dict(zip(header, row, strict=True)) for row in rows]
    write(where, "nuclear", summary, table(header, rows))


if __name__ == "__main__":
    main()
