"""The splits of ratings on which recommenders are compared.

"ml-100k" and "ml-1m" are the 50 / 25 / 25 splits of the paper. "ml-1m 90/10" and "ml-100k u1" are
those that others report; u1 is the fixed test set of MovieLens, and has side information of users
and items. InstEval are ratings of lectures by students (pydataset, lme4), on which nothing was
chosen.
"""

import os
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import datasets
import default_packages
import numpy as np
import pandas as pd
import scipy.sparse as sp
from datasets import Ratings
from experiment import load, split

from fastpoly import Joined

LEVELS = np.arange(1, 6)
U1 = "ml-100k-side"  # the file with u1 and the side information, in FASTPOLY_DATA
AGES = [18, 25, 35, 45, 50, 56]
YEARS = [1950, 1970, 1980, 1988, 1992, 1993, 1994, 1995, 1996, 1997]


class Part(NamedTuple):
    """Rows of one part of a split; `joined` has the side information, where there is any."""

    X: sp.csr_array
    user: np.ndarray
    item: np.ndarray
    rating: np.ndarray
    joined: Joined | None = None


def available(name: str, data: str) -> bool:
    """Whether the set can be read here."""
    if data != "real" or name.startswith("ml-1"):
        return name != "ml-100k u1" or data != "real" or side_file().is_file()
    return default_packages.folder("pydataset") is not None


@lru_cache(maxsize=1)
def parts(name: str, data: str, seed: int) -> tuple[Part, Part, Part]:
    """Training, validation and test part, each sorted by user."""
    ratings, numbers, side = read(name, data, seed)
    X = ratings.one_hot()
    joined = None if side is None else join(ratings, numbers[0], *side)

    def part(rows: np.ndarray) -> Part:
        rows = rows[np.argsort(ratings.user[rows], kind="stable")]
        columns = (ratings.user[rows], ratings.item[rows], ratings.rating[rows].astype(float))
        return Part(X[rows], *columns, None if joined is None else joined[rows])

    train, validation, test = map(part, numbers)
    return train, validation, test


Side = tuple[dict[str, np.ndarray], pd.DataFrame, pd.DataFrame]  # more keys of rows; tables


def read(name: str, data: str, seed: int) -> tuple[Ratings, list[np.ndarray], Side | None]:
    """The ratings, the row numbers of the three parts, and what is known beside them."""
    if name == "ml-100k u1":
        ratings, test, side = movielens_u1() if data == "real" else made_up_u1()
        return ratings, [np.flatnonzero(~test), np.arange(0), np.flatnonzero(test)], side
    ratings = load(name.split()[0], data) if name.startswith("ml-1") else lectures(data)
    n = len(ratings.rating)
    if name.endswith("90/10"):
        rows = np.random.default_rng(seed).permutation(n)
        return ratings, [rows[n // 10 :], rows[:0], rows[: n // 10]], None
    return ratings, list(split(n, seed)), None


def side_file() -> Path:
    return Path(os.environ.get("FASTPOLY_DATA", ".")) / f"{U1}.npz"


def movielens_u1() -> tuple[Ratings, np.ndarray, Side]:
    """MovieLens 100k with the mask of u1, users with three columns, items with two."""
    with np.load(side_file()) as file:
        z = dict(file)
    ratings = Ratings(z["user"] - 1, z["item"] - 1, z["rating"].astype(int), 943, 1682, U1)
    users = pd.DataFrame({
        "user": np.arange(943),
        "age": np.digitize(z["user_age"], AGES).astype(str),
        "gender": z["user_gender"],
        "occupation": z["user_occupation"],
        "region": [zip_code[:1] for zip_code in z["user_zip"]],
    })  # fmt: skip
    names = z["genre_names"]
    items = pd.DataFrame({
        "item": np.arange(1682),
        "year": np.digitize(z["item_year"], YEARS).astype(str),
        "genres": [list(names[row > 0]) for row in z["item_genres"]],
    })  # fmt: skip
    return ratings, z["u1_test"], ({"day": z["timestamp"] // 86400}, users, items)


def made_up_u1() -> tuple[Ratings, np.ndarray, Side]:
    """Ratings of the same form, for a trial."""
    ratings, rng = load("ml-100k", "quick"), np.random.default_rng(0)
    users = pd.DataFrame({"user": np.arange(ratings.n_users)})
    users["age"] = rng.integers(3, size=len(users)).astype(str)
    items = pd.DataFrame({"item": np.arange(ratings.n_items)})
    items["genres"] = [["war"] if each else ["war", "love"] for each in rng.integers(2, size=50)]
    day = rng.integers(5, size=len(ratings.rating))
    return ratings, rng.random(len(ratings.rating)) < 0.2, ({"day": day}, users, items)


def join(
    ratings: Ratings, train: np.ndarray, more: dict, users: pd.DataFrame, items: pd.DataFrame
) -> Joined:
    """All rows with their tables, and more keys without tables; a user also has the items that were
    rated in training, and an item the users who rated it.
    """
    user, item = ratings.user[train], ratings.item[train]
    return Joined(
        {"user": ratings.user, "item": ratings.item, **more},
        user=users.assign(rated=lists(user, item, len(users))),
        item=items.assign(raters=lists(item, user, len(items))),
        **dict.fromkeys(more),
    )


def lists(key: np.ndarray, value: np.ndarray, n_keys: int) -> list[list[str]]:
    """The values of each key."""
    order = np.argsort(key, kind="stable")
    ends = np.cumsum(np.bincount(key, minlength=n_keys))[:-1]
    return [part.astype(str).tolist() for part in np.split(value[order], ends)]


def lectures(data: str) -> Ratings:
    """InstEval: 73,421 ratings 1 to 5 of 1,128 lecturers by 2,972 students."""
    if data != "real":
        return datasets.made_up_ratings(1500, 40, 50)
    with tarfile.open(default_packages.folder("pydataset") / "resources.tar.gz") as files:
        file = files.extractfile("resources/rdata/csv/lme4/InstEval.csv")
        frame = pd.read_csv(file, index_col=0)
    user, item = (np.unique(frame[name], return_inverse=True)[1] for name in ("s", "d"))
    n_users, n_items = int(user.max()) + 1, int(item.max()) + 1
    return Ratings(user, item, frame["y"].to_numpy(), n_users, n_items, "InstEval")
