"""The value of each mechanism of the convex output refit, switched off one at a time.

    FASTPOLY_DATA=folder python bench/ablation.py [case ...] [--quick] [--limit 4] [--only label]

Every cell is a cold refit (V = 0) by Newton's method on the activations of 30 basis vectors, on one
thread. It shows the CPU seconds until the certified gap is at most 1e-3 and 1e-5 of the objective,
and the iterations to the latter. A dash is a run that exceeds the limit or gives up. The variants
of a cell run one after the other, twice, and the faster time counts. Data sets that are not found
are replaced by made-up ones.
"""

import argparse
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from time import process_time
from typing import NamedTuple
from unittest.mock import patch

import datasets
import numpy as np
import scipy.linalg  # noqa: F401  (its BLAS must be loaded before threads are limited)
from experiment import table
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from fastpoly import Design, conditional_gradient
from fastpoly.kernels import quadratic
from fastpoly.refit import convex, refit_output
from fastpoly.refit.convex import Newton, OutputProblem

GAPS = (1e-3, 1e-5)
PENALTIES = ("l1", "l1/l2", "l1/linf")

# label: the attributes that switch a mechanism off. The first variant is the code as it is.
VARIANTS: dict[str, list[tuple[object, str, object]]] = {
    "as it is": [],
    "no linear systems": [(quadratic.Quadratic, "solve", lambda self, level: 0.0)],
    "only upper bounds": [(quadratic, "SHARPER", 1.0)],
    "5 sweeps": [(quadratic, "SWEEPS", 5)],
    "no interactions": [(convex, "couples", lambda problem: False)],
    "new Hessian every step": [(Newton, "curvature_change", 0.0)],
    "no centering": [(Newton, "center", lambda self, P, O: (P, O))],
    "12 iterations of patience": [(Newton, "patience", 12)],
    "inner 1e-1": [(quadratic, "LAST_ROUND_GAIN", 1e-1)],
    "inner 1e-3": [(quadratic, "LAST_ROUND_GAIN", 1e-3)],
}


class Case(NamedTuple):
    """A refit: activations, targets and the strength of the penalty."""

    A: np.ndarray
    y: np.ndarray
    m: int
    loss: str = "logistic"
    alpha: float = 1.0
    weight: np.ndarray | None = None
    start: np.ndarray | None = None


class Cell(NamedTuple):
    """Seconds to the gaps (infinity if they are not reached) and iterations to the last one."""

    seconds: tuple[float, ...]
    n_iter: int


class TimeUpError(Exception):
    """The limit of a cell has passed."""


# ---- cases --------------------------------------------------------------------------------------


def basis_vectors(X: np.ndarray, y: np.ndarray, m: int, k: int) -> np.ndarray:
    """Activations of the first k basis vectors of the paper's algorithm without a refit."""
    design = Design(X, "squared", fit_lower="augment", n_threads=1)
    for state in conditional_gradient(
        design, y, alpha=1.0, refit=None, n_components=k, n_outputs=m, random_state=0
    ):
        last = state
    return design.activations(last.H)


def class_case(name: str, rows: int | None, k: int, quick: bool) -> Case:
    shape = (120, 5, 4) if quick else None
    data = (None if quick else datasets.find(name)) or datasets.stand_in(name, shape)
    X, y = data.X[:rows], data.y[:rows]
    return Case(basis_vectors(X, y, data.m, k), y, data.m)


def digits(k: int, quick: bool) -> Case:
    X, y = load_digits(return_X_y=True)
    X, y = X[: 150 if quick else None] / 16, y[: 150 if quick else None]
    return Case(basis_vectors(X, y, 10, k), y, 10)


def collinear(k: int, quick: bool) -> Case:
    """Every column twice, 1e-8 apart, and scales from 1e-3 to 1e3."""
    rng, n, m = np.random.default_rng(0), 100 if quick else 1000, 5
    A = rng.normal(size=(n, k // 2))
    y = (A @ rng.normal(size=(k // 2, m)) + rng.normal(size=(n, m))).argmax(axis=1)
    A = np.hstack([A, A + 1e-8 * rng.normal(size=A.shape)])
    return Case(A * np.logspace(-3, 3, A.shape[1]), y, m)


def ordinal(k: int, quick: bool) -> Case:
    """Binary outputs y <= c of five levels, as of ratings."""
    rng, n = np.random.default_rng(0), 100 if quick else 3000
    A = (rng.normal(size=(n, 8)) @ rng.normal(size=(8, k))) ** 2
    score = A @ rng.normal(size=k) / k + rng.normal(size=n)
    level = np.searchsorted(np.quantile(score, [0.1, 0.3, 0.6, 0.8]), score)
    signs = np.where(level[:, None] <= np.arange(4), 1.0, -1.0)
    return Case(A, signs, 4, loss="binary_logistic")


def nearly_linear(k: int, quick: bool) -> Case:
    """Class weights of 1000 and 1e-4, large features, and the optimum of one column as a start.

    There, most rows are classified correctly by a wide margin.
    """
    rng, n, m = np.random.default_rng(0), 50, 3
    X, y = 20 * rng.normal(size=(n, 2)), np.arange(n) % m
    weight = np.array([1000, 1e-4, 1e-4])[y]
    design = Design(X, "squared", fit_lower="augment", n_threads=1)
    states = conditional_gradient(design, y, alpha=1.0, sample_weight=weight, random_state=0)
    for state in states:
        if state.n_components == 1:
            first = state
        if state.n_components == 2:
            break
    start = np.vstack([first.V, np.zeros((1, m))])
    return Case(design.activations(state.H), y, m, weight=weight, start=start)


def cases(quick: bool) -> Iterator[tuple[str, Case]]:
    k = 8 if quick else 30
    for name, rows in (("satimage", None), ("vowel", None), ("segment", None), ("letter", 3000)):
        yield name, class_case(name, rows, k, quick)
    yield "letter, 60 vectors", class_case("letter", 3000, 2 * k, quick)
    yield "digits", digits(k, quick)
    yield "collinear", collinear(k, quick)
    yield "ordinal", ordinal(k, quick)
    yield "nearly linear", nearly_linear(k, quick)


# ---- measuring ----------------------------------------------------------------------------------


def measure(case: Case, penalty: str, changes: list, limit: float) -> Cell:
    """One refit, with the changes applied to the modules while it runs."""
    reached: dict[float, float] = {}
    n_certificates, begun = 0, 0.0
    certificate = OutputProblem.certificate

    def watched(self, *arguments):
        nonlocal n_certificates
        answer = certificate(self, *arguments)
        now = process_time() - begun
        for gap in GAPS:
            if answer.gap <= gap * self.size(answer.objective):
                reached.setdefault(gap, now)
        n_certificates += 1
        if now > limit:
            raise TimeUpError
        return answer

    with ExitStack() as stack:
        for module, name, value in changes:
            stack.enter_context(patch.object(module, name, value))
        stack.enter_context(patch.object(OutputProblem, "certificate", watched))
        begun = process_time()
        with suppress(TimeUpError):
            refit_output(
                case.A, case.y, loss=case.loss, penalty=penalty, alpha=case.alpha, tol=GAPS[-1],
                solver="newton", sample_weight=case.weight, n_outputs=case.m, start=case.start,
            )  # fmt: skip
    return Cell(tuple(reached.get(gap, np.inf) for gap in GAPS), n_certificates - 1)


def rows_of(name: str, case: Case, variants: dict, limit: float, repeats: int) -> list[list[str]]:
    """The rows of the table for one case: one per penalty and gap."""
    lines = []
    for penalty in PENALTIES:
        best: dict[str, Cell] = {}
        for _ in range(repeats):
            for label, changes in variants.items():
                if label in best and best[label].seconds[-1] > limit / 2:
                    continue
                cell = measure(case, penalty, changes, limit)
                if label not in best or cell.seconds < best[label].seconds:
                    best[label] = cell
        lines.append([f"{name}, {penalty}", *(shown(cell) for cell in best.values())])
        print("|", " | ".join(lines[-1]), "|", flush=True)
    return lines


def shown(cell: Cell) -> str:
    times = " / ".join("-" if np.isinf(s) else f"{s:.2f}" for s in cell.seconds)
    return f"{times} ({cell.n_iter})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="case", help="only these cases")
    parser.add_argument("--quick", action="store_true", help="tiny made-up data, a few seconds")
    parser.add_argument("--limit", type=float, default=4.0, help="seconds for each cell")
    parser.add_argument("--only", nargs="*", metavar="label", help="only these variants")
    options = parser.parse_args()
    limit = 0.1 if options.quick else options.limit
    variants = {v: VARIANTS[v] for v in options.only or VARIANTS}
    lines = []
    with threadpool_limits(1):
        for name, case in cases(options.quick):
            if not options.names or name in options.names:
                lines += rows_of(name, case, variants, limit, 1 if options.quick else 2)
    print("\n" + table(["seconds to 1e-3 / 1e-5 (iterations)", *variants], lines))


if __name__ == "__main__":
    main()
