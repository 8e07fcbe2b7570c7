"""Any number of ratings from a known model, written as shards in bounded memory.

The activity of users is log-normal, and the popularity of items follows Zipf's law. A rating is the
number of thresholds below

    z = b_user + c_item + sum_r s_r u_r v_r + logistic noise,      rank 5, s decreasing,

so that P(stars <= c) = sigmoid(t_c - z without noise). A fit can be compared with the log-loss of
these true probabilities on rows held out. Every range of users has its own random stream, so ranges
can be made in any order, and the same seed gives the same rows.

    python bench/planted.py FOLDER --rows 1e7
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly import Shards, write_shards

STARS = np.array([56174, 107557, 261197, 348971, 226310])  # histogram of MovieLens 1M
RANK = 5
USERS_AT_ONCE = 4096
HELD_OUT = 0.02  # share of the rows

Floats = NDArray[np.float64]


class Ratings(NamedTuple):
    """Rows, with their scores z without noise."""

    user: NDArray[np.int64]
    item: NDArray[np.int64]
    stars: NDArray[np.int64]
    score: Floats


class Planted:
    """The model and its rows.

    Parameters
    ----------
    n_rows : float
        Approximate number of rows.
    n_items : int
    rows_per_user : float
        Average number of rows per user.
    seed : int
    """

    def __init__(
        self, n_rows: float, n_items: int = 4000, rows_per_user: float = 160.0, seed: int = 0
    ) -> None:
        self.seed, self.n_items = seed, n_items
        self.n_users = max(1, round(n_rows / rows_per_user))
        self.rows_per_user = rows_per_user
        rng = self._stream(0)
        self.strength = 0.9 ** np.arange(RANK)
        self.bias = 0.5 * rng.standard_normal(n_items)
        self.factors = rng.standard_normal((n_items, RANK))
        popularity = 1 / np.arange(1, n_items + 1) ** 0.8
        self.ends = np.cumsum(popularity) / popularity.sum()
        self.thresholds = np.zeros(len(STARS) - 1)
        sample = self._range(np.arange(USERS_AT_ONCE), self._stream(1))
        noisy = sample.score + self._stream(2).logistic(size=len(sample.score))
        self.thresholds = np.quantile(noisy, np.cumsum(STARS)[:-1] / STARS.sum())

    def _stream(self, number: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, number]))

    def _range(self, users: NDArray, rng: np.random.Generator) -> Ratings:
        # The mean of a log-normal number is exp(mu + sigma^2 / 2).
        activity = rng.lognormal(np.log(self.rows_per_user) - 0.5, 1.0, size=len(users))
        counts = np.maximum(5, activity.astype(int))
        bias = 0.5 * rng.standard_normal(len(users))
        factors = rng.standard_normal((len(users), RANK))
        at = np.repeat(np.arange(len(users)), counts)
        items = np.searchsorted(self.ends, rng.random(len(at))).clip(max=self.n_items - 1)
        score = bias[at] + self.bias[items] + (factors[at] * self.factors[items]) @ self.strength
        noisy = score + rng.logistic(size=len(at))
        stars = 1 + np.searchsorted(self.thresholds, noisy)
        return Ratings(users[at], items, stars, score)

    def batches(self) -> Iterator[Ratings]:
        """All rows, one range of users at a time."""
        for first in range(0, self.n_users, USERS_AT_ONCE):
            users = np.arange(first, min(first + USERS_AT_ONCE, self.n_users))
            yield self._range(users, self._stream(16 + first))

    def write(self, folder: Path, rows_per_shard: int) -> tuple[Shards, Ratings]:
        """Write most rows as shards; return them and the rows held out."""
        held = []

        def kept() -> Iterator[dict[str, NDArray]]:
            for number, batch in enumerate(self.batches()):
                out = self._stream(2**40 + number).random(len(batch.user)) < HELD_OUT
                held.append(Ratings(*(column[out] for column in batch)))
                names = zip(("user", "item", "stars"), batch, strict=False)
                yield {name: column[~out] for name, column in names}

        shards = write_shards(
            folder, kept(), one_hot=["user", "item"], target="stars",
            rows_per_shard=rows_per_shard, overwrite=True,
        )  # fmt: skip
        return shards, Ratings(*map(np.concatenate, zip(*held, strict=True)))

    def log_loss(self, outputs: Floats, stars: NDArray) -> float:
        """Mean log-loss of the binary questions "at most c stars?", from outputs (n, 4)."""
        signs = np.where(stars[:, None] <= np.arange(1, len(STARS)), 1.0, -1.0)
        return float(np.logaddexp(0, -signs * outputs).mean())

    def true_outputs(self, score: Floats) -> Floats:
        """The outputs of a perfect model, t_c - z."""
        return self.thresholds - score[:, None]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write planted ratings as shards.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=float, default=1e6)
    parser.add_argument("--rows-per-shard", type=int, default=2**20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    planted = Planted(options.rows, seed=options.seed)
    shards, held = planted.write(options.folder, options.rows_per_shard)
    best = planted.log_loss(planted.true_outputs(held.score), held.stars)
    print(f"{shards.n_samples} rows, {len(held.user)} held out, log-loss of the truth {best:.5f}")


if __name__ == "__main__":
    main()
