"""Cases of the activations: all of them, and sums over them that do not store them."""

import tracemalloc
from collections.abc import Iterator

import numpy as np
from datasets import made_up_ratings

from fastpoly import Design

from . import Case


def cases(quick: bool = False) -> Iterator[Case]:
    """Yield the cases; the arrays of a case are made when it is requested."""
    n = 1_000_209 // (50 if quick else 1)
    X = made_up_ratings(n, 6040, 3900).one_hot()
    XX = X * X
    rng = np.random.default_rng(0)
    n, d = X.shape
    designs = [Design(X, "anova", n_threads=t) for t in (1, 2)]

    k = 50
    H = rng.standard_normal((k, d))

    def scipy_activations(H: np.ndarray) -> np.ndarray:
        return ((X @ H.T) ** 2 - XX @ (H * H).T) / 2

    yield Case(
        "ANOVA activations",
        f"one-hot n={n} k={k}",
        lambda t: designs[t - 1].activations(H),
        {
            "scipy, X*X stored": lambda: scipy_activations(H),
            "zeros to new memory": lambda: np.empty((n, k)).fill(0),
        },
        {"scipy, X*X stored": 5.0},
        bytes=8 * n * (k + 1) + 8 * d * k,
        flops=6 * n * k,
        rtol=None,  # zeros are not activations; the next case compares the values
    )

    result = np.zeros((n, k))
    yield Case(
        "ANOVA, memory reused",
        f"one-hot n={n} k={k}",
        lambda t: designs[t - 1].features(H).activations(out=result),
        {"scipy, X*X stored": lambda: scipy_activations(H)},
        {},
        bytes=8 * n * (k + 1) + 8 * d * k,
        flops=6 * n * k,
    )

    k, m = 30, 4
    basis, V, D = rng.standard_normal((k, d)), rng.standard_normal((k, m)), rng.random((n, m))

    def ours(n_threads: int, H: np.ndarray = basis, V: np.ndarray = V) -> np.ndarray:
        features = designs[n_threads - 1].features(H)
        return np.concatenate([features.outputs(V).ravel(), features.pullback(D).ravel()])

    def stored() -> np.ndarray:
        S = scipy_activations(basis)
        return np.concatenate([(S @ V).ravel(), (S.T @ D).ravel()])

    def memory() -> str:
        wide = np.vstack([basis, basis]), np.vstack([V, V])
        peaks = [peak(lambda: ours(1)), peak(lambda: ours(1, *wide)), peak(stored)]
        once, twice, theirs = (f"{p / 2**20:.0f} MB" for p in peaks)
        return (
            f"V's(Hx) and its adjoint: peak memory {once} at k=30, {twice} at k=60; scipy {theirs}"
        )

    yield Case(
        "V's(Hx) + sum_i s(Hx_i) d_i'",
        f"one-hot n={n} k={k} m={m}",
        ours,
        {"scipy, n x k stored": stored},
        {"scipy, n x k stored": 2.0},
        bytes=2 * (8 * n + 8 * n * m) + 8 * d * k,
        flops=2 * n * k * (6 + 2 * m),
        note=memory,
    )


def peak(run) -> int:
    """The peak of allocated bytes while it runs."""
    tracemalloc.start()
    run()
    highest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return highest
