"""Data for the benchmarks: MovieLens where FASTPOLY_DATA names a folder with it, else generated."""

import os
from pathlib import Path

import numpy as np
import scipy.sparse as sp


def load(name: str) -> dict[str, np.ndarray] | None:
    """The arrays of FASTPOLY_DATA/name.npz, or None."""
    path = Path(os.environ.get("FASTPOLY_DATA", "")) / f"{name}.npz"
    if not path.is_file():
        return None
    with np.load(path) as arrays:
        return dict(arrays)


def ratings(
    n: int, n_users: int, n_items: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Users (sorted), items and ratings 1..5: uneven popularity, and taste of rank 4."""
    rng = np.random.default_rng(seed)

    def draw(size: int) -> np.ndarray:
        popularity = rng.lognormal(sigma=1.3, size=size)
        return rng.choice(size, n, p=popularity / popularity.sum())

    user, item = np.sort(draw(n_users)), draw(n_items)
    tastes = rng.standard_normal((n_users, 4)), rng.standard_normal((n_items, 4))
    liking = 0.4 * (tastes[0][user] * tastes[1][item]).sum(axis=1) + rng.standard_normal(n)
    liking += rng.standard_normal(n_users)[user] + rng.standard_normal(n_items)[item]
    return user, item, 1 + np.searchsorted(np.quantile(liking, [0.06, 0.17, 0.44, 0.79]), liking)


def one_hot(
    user: np.ndarray, item: np.ndarray, n_users: int, n_items: int, dtype: type = np.float64
) -> sp.csr_array:
    """Rows with a 1 at the user and a 1 at the item, (n, n_users + n_items)."""
    n = len(user)
    columns = np.column_stack([user, n_users + item]).ravel().astype(np.int32)
    values, starts = np.ones(2 * n, dtype), np.arange(0, 2 * n + 1, 2, dtype=np.int32)
    return sp.csr_array((values, columns, starts), shape=(n, n_users + n_items))
