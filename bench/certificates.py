"""Claims of optimality, judged by brute force: how many are false, and what they cost.

A fit ends with stop "optimal" if no basis vector violates the optimality condition by more than
tol, that is if the largest dual norm of q_c(h) = h' Gamma_c h over |h| = 1 is at most
(1 + tol) alpha. Here it is computed in plain NumPy: eigenvalues for l1, all signs for l1/linf where
there are few, and 100 ascents from random points for the rest. A claim is false if the true
violation is above (1 + 2 tol) alpha.

The problems are random, 2 to 30 outputs and 4 to 200 features, and hard on purpose: the targets are
noise, so that many basis vectors are nearly as good as the best. The form of Gamma is the one that
the package chooses by itself for such rows. The share of the thorough search in the time of the
fits is measured on the way.
"""

import itertools
import tempfile
from collections.abc import Iterator
from time import perf_counter

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from experiment import Options, Result, Store, Task, options, run_tasks, table, write

import fastpoly.algorithm
from fastpoly import Design, Shards, alpha_max, conditional_gradient, write_shards
from fastpoly.kernels.explicit import explicit_pays

PATHS = ("explicit", "dense rows", "CSR rows", "shards")
PENALTIES = ("l1", "l1/l2", "l1/linf")
TOLS = (1e-3, 0.1)
SECONDS = 20.0  # a fit that takes longer is given up
STARTS = 100
SIGN_FLOPS = 1e10  # what the enumeration of signs may cost
FIRST_SEED = 200  # the search was tuned on the problems before


# ---- problems ------------------------------------------------------------------------------------


class Problem:
    """Rows X, targets y, and the number of outputs, of the path of Gamma that is asked for."""

    def __init__(self, path: str, seed: int) -> None:
        rng = np.random.default_rng([PATHS.index(path), seed])
        explicit = path == "explicit"
        while True:
            self.m = m = int(rng.integers(2, 31))
            d = int(np.exp(rng.uniform(np.log(4), np.log(200))))
            n = max(m, int(d * rng.uniform(0.4, 4)))
            stored = float(d)
            if path == "CSR rows" or (path == "shards" and rng.random() < 0.5):
                stored = max(1.0, d * rng.uniform(0.02, 0.2))
            if explicit_pays(n, d, m, stored) == explicit:
                break
        self.X: np.ndarray | sp.csr_array = rng.standard_normal((n, d)) * rng.uniform(0.5, 2, d)
        if stored < d:
            self.X[rng.random((n, d)) > stored / d] = 0
            self.X = sp.csr_array(self.X)
        self.squared = bool(rng.random() < 0.5)
        self.y = rng.standard_normal((n, m)) if self.squared else rng.permutation(np.arange(n) % m)
        self.loss = "squared" if self.squared else "multiclass_logistic"
        self.share = float(rng.uniform(0.2, 0.8))

    @property
    def rows(self) -> np.ndarray:
        return self.X.toarray() if sp.issparse(self.X) else self.X

    def matrices(self, H: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Gamma_c of a model, (m, d, d)."""
        X = self.rows
        O = (X @ H.T) ** 2 @ V
        if self.squared:
            D = O - self.y
        else:
            D = np.exp(O - O.max(axis=1, keepdims=True))
            D /= D.sum(axis=1, keepdims=True)
            D[np.arange(len(X)), self.y] -= 1
        return np.array([(X * weights[:, None]).T @ X for weights in D.T])


# ---- brute force ---------------------------------------------------------------------------------


def largest_dual_norm(G: np.ndarray, penalty: str, rng: np.random.Generator) -> float:
    """The largest dual norm of (h' G_c h)_c over |h| = 1, as well as it can be found."""
    m, d, _ = G.shape
    if penalty == "l1":
        return float(np.abs(np.linalg.eigvalsh(G)).max())
    if penalty == "l1/linf" and 2.0**m * (m * d**2 + d**3) <= SIGN_FLOPS:
        return max(float(np.abs(np.linalg.eigvalsh(M)).max()) for M in all_signs(G))
    best = [ascend(G, penalty, h) for h in rng.standard_normal((STARTS, d))]
    best.sort(key=lambda found: -found[0])
    if penalty == "l1/linf":
        best += [flip(G, *found) for found in best[:5]]
    return max(value for value, _ in best)


def all_signs(G: np.ndarray) -> Iterator[np.ndarray]:
    """The matrices sum_c s_c G_c for all signs, up to a common one, in blocks."""
    signs = itertools.product((1.0, -1.0), repeat=len(G) - 1)
    while block := list(itertools.islice(signs, max(1, 2**20 // G[0].size))):
        S = np.column_stack([np.ones(len(block)), np.array(block)])
        yield np.tensordot(S, G, 1)


def forms(G: np.ndarray, h: np.ndarray) -> np.ndarray:
    return (G @ h) @ h / (h @ h)


def ascend(G: np.ndarray, penalty: str, h: np.ndarray) -> tuple[float, np.ndarray]:
    """h <- the top eigenvector of sum_c w_c G_c, w the slopes of the dual norm, to the end."""
    value = 0.0
    while True:
        q = forms(G, h)
        before = value
        value = float(np.abs(q).sum() if penalty == "l1/linf" else np.linalg.norm(q))
        if value <= before * (1 + 1e-6):
            return value, h
        h = top(G, np.sign(q) if penalty == "l1/linf" else q)


def top(G: np.ndarray, w: np.ndarray) -> np.ndarray:
    last = len(G[0]) - 1
    return scipy.linalg.eigh(np.tensordot(w, G, 1), subset_by_index=[last, last])[1][:, 0]


def flip(G: np.ndarray, value: float, h: np.ndarray) -> tuple[float, np.ndarray]:
    """Single sign flips, for l1/linf, until none helps."""
    while True:
        signs = np.sign(forms(G, h))
        flips = signs * (1 - 2 * np.eye(len(G)))
        found = max((ascend(G, "l1/linf", top(G, w)) for w in flips), key=lambda found: found[0])
        if found[0] <= value * (1 + 1e-6):
            return value, h
        value, h = found


# ---- fits ----------------------------------------------------------------------------------------


class Timed:
    """`select_basis` with the seconds and the number of its thorough searches."""

    def __init__(self) -> None:
        self.select_basis, self.seconds, self.calls = fastpoly.algorithm.select_basis, 0.0, 0

    def __call__(self, *args, **options):
        begun = perf_counter()
        result = self.select_basis(*args, **options)
        if options.get("thorough"):
            self.seconds += perf_counter() - begun
            self.calls += 1
        return result

    def __enter__(self) -> "Timed":
        fastpoly.algorithm.select_basis = self
        return self

    def __exit__(self, *_: object) -> None:
        fastpoly.algorithm.select_basis = self.select_basis


def run(task: Task) -> Result:
    """alpha_max and one fit per tolerance, each beside the truth."""
    problem = Problem(task["path"], task["seed"])
    rng = np.random.default_rng(task["seed"])
    penalty, (n, d) = task["penalty"], problem.X.shape
    options = {"loss": problem.loss, "penalty": penalty, "random_state": 0}
    result = {"m": problem.m, "d": d, "n": n, "fits": []}
    with tempfile.TemporaryDirectory() as folder:
        rows, y = Design(problem.X, n_threads=1), problem.y
        if task["path"] == "shards":
            parts = np.array_split(np.arange(n), 3)
            write_shards(folder, [(problem.X[part], y[part]) for part in parts])
            rows, y = Shards(folder), None
        empty = np.zeros((0, d)), np.zeros((0, problem.m))
        largest = largest_dual_norm(problem.matrices(*empty), penalty, rng)
        result["alpha_max"] = alpha_max(rows, y, **options) / largest
        for tol in TOLS:
            options |= {"alpha": problem.share * largest, "tol": tol, "n_components": 200}
            result["fits"].append(fit(problem, rows, y, penalty, options, rng))
    return result


def fit(
    problem: Problem, rows: Design | Shards, y: np.ndarray | None, penalty: str, options: dict,
    rng: np.random.Generator,
) -> Result:  # fmt: skip
    alpha, begun = options["alpha"], perf_counter()
    with Timed() as thorough:
        for state in conditional_gradient(rows, y, **options):  # noqa: B007
            if perf_counter() - begun > SECONDS:
                break
    result = {
        "tol": options["tol"], "stop": state.stop, "found": state.violation / alpha,
        "n_components": state.n_components, "seconds": perf_counter() - begun,
        "thorough": thorough.seconds, "calls": thorough.calls,
    }  # fmt: skip
    if state.stop in ("optimal", "unconfirmed"):
        G = problem.matrices(state.H, state.V)
        result["true"] = largest_dual_norm(G, penalty, rng) / alpha
    return result


def tasks(where: Options) -> list[Task]:
    return [
        {"path": path, "penalty": penalty, "seed": seed}
        for seed in range(FIRST_SEED, FIRST_SEED + (1 if where.quick else 200))
        for path in PATHS
        for penalty in PENALTIES
    ]


def main(argv: list[str] | None = None) -> None:
    with options(__doc__, argv) as where:
        store = Store(where.results / "certificates_runs.json")
        report(where, run_tasks(run, tasks(where), store, where.processes, "certificates"))


def report(where: Options, results: list[tuple[Task, Result]]) -> None:
    groups: dict[tuple[str, ...], list[Result]] = {}
    for task, result in results:
        m = "2-7" if result["m"] < 8 else "8-17" if result["m"] < 18 else "18-30"
        for run in result["fits"]:
            run["alpha_max"] = result["alpha_max"]
            for outputs in (m, "all"):
                group = str(run["tol"]), task["penalty"], task["path"], outputs
                groups.setdefault(group, []).append(run)
    rows = [[*group, *line(runs)] for group, runs in sorted(groups.items())]
    header = [
        "tol", "penalty", "Gamma", "m", "problems", "optimal", "false", "worst / alpha",
        "unconfirmed", "worst / alpha", "alpha_max low", "thorough / fit",
    ]  # fmt: skip
    text = "# Claims of optimality, judged by brute force\n\n" + table(header, rows)
    write(where, "certificates", [dict(zip(header, row, strict=True)) for row in rows], text)


def line(runs: list[Result]) -> list[object]:
    """The cells of one group of fits."""
    optimal = [run for run in runs if run["stop"] == "optimal"]
    false = sum(run["true"] > 1 + 2 * run["tol"] for run in optimal)
    unconfirmed = [run for run in runs if run["stop"] == "unconfirmed"]
    low = sum(run["alpha_max"] < 1 - 1e-3 for run in runs)
    share = sum(run["thorough"] for run in runs) / sum(run["seconds"] for run in runs)
    return [
        len(runs), len(optimal), false, worst(optimal), len(unconfirmed), worst(unconfirmed), low,
        f"{100 * share:.0f} %",
    ]  # fmt: skip


def worst(runs: list[Result]) -> str:
    return f"{max((run['true'] for run in runs), default=0):.4f}"


if __name__ == "__main__":
    main()
