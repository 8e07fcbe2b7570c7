"""A short demonstration on generated data: `fastpoly-demo`.

First the kernels: one pass over the data for all outputs, against the two lines of SciPy that
compute the same, one thread each. Then a factorization machine with five classes that share one
basis, trained on products of features that no linear model can see.
"""

from collections.abc import Callable
from time import perf_counter

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from fastpoly import Design, PolyModel, conditional_gradient
from fastpoly.kernels.eigen import dominant_eigenvectors
from fastpoly.kernels.losses import MulticlassLogistic
from fastpoly.kernels.runtime import simd_level
from fastpoly.threads import one_blas_thread

ROUNDS = 5


def main() -> None:
    """Print both parts."""
    print(f"fastpoly on generated data; inner loops: {simd_level()}\n")
    compare_kernels()
    print()
    train_classifier()


def ratings(
    n: int, n_users: int, n_items: int, rng: np.random.Generator
) -> tuple[sp.csr_array, np.ndarray]:
    """One-hot rows [user, item] (n, n_users + n_items) and ratings 0..4 with taste in them."""
    user = np.sort(rng.integers(0, n_users, n))
    item = n_users + rng.zipf(1.3, n) % n_items
    columns = np.column_stack([user, item]).ravel()
    X = sp.csr_array(
        (np.ones(2 * n), columns, np.arange(0, 2 * n + 1, 2)), shape=(n, n_users + n_items)
    )
    taste = rng.standard_normal((n_users + n_items, 4))
    liking = (taste[user] * taste[item]).sum(axis=1) + rng.standard_normal(n)
    return X, np.searchsorted(np.quantile(liking, [0.06, 0.17, 0.44, 0.79]), liking)


def compare_kernels() -> None:
    rng = np.random.default_rng(0)
    X, y = ratings(200_000, 4000, 2000, rng)
    n, d, m, k = *X.shape, 5, 30
    loss, outputs, rows = MulticlassLogistic(), rng.standard_normal((n, m)), np.arange(n)
    Y = loss.encode(y, m)
    D = loss.value_grad(Y, outputs)[1]
    B, H, V = rng.standard_normal((d, m)), rng.standard_normal((k, d)), rng.standard_normal((k, m))
    design = Design(X, "anova", n_threads=1)
    gamma, XX, diagonal = design.gamma(D), X * X, (X * X).T @ D

    def scipy_products() -> np.ndarray:
        parts = [X.T @ (D[:, c] * (X @ B[:, c])) for c in range(m)]
        return (np.column_stack(parts) - diagonal * B) / 2

    def scipy_activations() -> np.ndarray:
        return ((X @ H.T) ** 2 - XX @ (H * H).T) / 2

    def scipy_loss() -> np.ndarray:
        log_sum = logsumexp(outputs, axis=1, keepdims=True)
        G = np.exp(outputs - log_sum)
        G[rows, y] -= 1
        return G

    table = (
        ("Gamma_c b_c for all outputs", lambda: gamma.matvecs(B), scipy_products),
        (f"activations of {k} bases", lambda: design.activations(H), scipy_activations),
        (
            "outputs, no n x k matrix",
            lambda: design.outputs(H, V),
            lambda: scipy_activations() @ V,
        ),
        ("loss and its gradient", lambda: loss.value_grad(Y, outputs)[1], scipy_loss),
    )
    print(f"{n:,} ratings of {d - 2000:,} users x 2,000 items, {m} outputs, one thread")
    print(f"{'kernel':<30}{'fastpoly':>10}{'SciPy':>10}{'faster':>9}{'differ by':>12}")
    for name, ours, theirs in table:
        a, b = ours(), theirs()
        difference = np.abs(a - b).max() / np.abs(b).max()
        fast, slow = interleaved(ours, theirs)
        times = f"{1e3 * fast:>7.1f} ms{1e3 * slow:>7.1f} ms{slow / fast:>8.1f}x"
        print(f"{name:<30}{times}{difference:>12.0e}")
    top = dominant_eigenvectors(gamma, random_state=0)
    print(f"dominant eigenvectors of the {m} operators: {top.n_matvecs} passes over the data")


def interleaved(*runs: Callable[[], object]) -> list[float]:
    """Median seconds of each, taken in turns so that they share what else the machine does."""
    times = np.empty((ROUNDS, len(runs)))
    with one_blas_thread():
        for row in times:
            for i, run in enumerate(runs):
                begun = perf_counter()
                run()
                row[i] = perf_counter() - begun
    return list(np.median(times, axis=0))


def train_classifier() -> None:
    rng = np.random.default_rng(1)
    n, d, m = 2000, 20, 5
    X = rng.standard_normal((2 * n, d))
    scores = np.column_stack([X[:, c] * X[:, c + 1] - X[:, c + 7] * X[:, c + 9] for c in range(m)])
    y = scores.argmax(axis=1)
    train, test = slice(0, n), slice(n, 2 * n)

    print(f"a factorization machine for {m} classes, {n:,} rows, {d} features, penalty l1/l2")
    print(f"{'bases':>5}{'objective':>12}{'violation':>12}{'test accuracy':>15}{'seconds':>10}")
    design, begun = Design(X[train], "anova"), perf_counter()
    states = conditional_gradient(design, y[train], alpha=10.0, n_components=20, random_state=0)
    for state in states:
        model = PolyModel(state.H, state.V, state.intercept, activation="anova")
        accuracy = (model.decision(X[test]).argmax(axis=1) == y[test]).mean()
        if state.n_iter % 4 == 0 or state.stop:
            numbers = f"{state.objective:>12.1f}{state.violation:>12.1f}{accuracy:>15.3f}"
            print(f"{state.n_components:>5}{numbers}{perf_counter() - begun:>10.2f}")
    pairs = ", ".join(f"{v:+.2f} x{i} x{j}" for i, j, v in model.top_interactions(0, 2))
    print(f"class 0 was made as x0 x1 - x7 x9; strongest interactions found: {pairs}")


if __name__ == "__main__":
    main()
