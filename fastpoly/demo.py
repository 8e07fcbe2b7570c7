"""A short demonstration: `fastpoly-demo`.

A network for all ten classes of scikit-learn's digits, and an ordinal factorization machine on
generated ratings, each beside the ways to a quadratic model that scikit-learn has. Prints two
tables and saves a picture, in well under a minute.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures
from sklearn.svm import SVC

from fastpoly import FactorizationMachineOrdinalRegressor, PolynomialNetworkClassifier
from fastpoly.metrics import rmse

PICTURE = "fastpoly-demo.png"


class Split(NamedTuple):
    """Training and test rows."""

    X: Any
    X_test: Any
    y: np.ndarray
    y_test: np.ndarray


def main(arguments: list[str] | None = None) -> None:
    """Train, compare, print, draw."""
    parser = argparse.ArgumentParser("fastpoly-demo", description="Demonstration of fastpoly.")
    parser.add_argument("--picture", type=Path, default=Path(PICTURE), help="where to save it")
    picture = parser.parse_args(arguments).picture
    if trouble := why_not_saved(picture):
        parser.error(f"--picture {picture}: {trouble}")
    data = digits()
    network = compare_on_digits(data)
    print()
    stars = ratings()
    machine = compare_on_ratings(stars)
    print()
    print(draw(network, data, machine, stars, picture))


def why_not_saved(picture: Path) -> str | None:
    """What is wrong with the path, to know it before training; None if nothing is."""
    if picture.is_dir():
        return "is a folder; name a file in it"
    if not picture.parent.is_dir():
        return "its folder does not exist; create it first"
    if not os.access(picture if picture.exists() else picture.parent, os.W_OK):
        return "may not be written"
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None  # no picture, then
    kinds = Figure().canvas.get_supported_filetypes()
    if picture.suffix and picture.suffix[1:].lower() not in kinds:
        return f"unknown format; known: {', '.join(sorted(kinds))}"
    return None


def digits() -> Split:
    """Images of 8 x 8 pixels in 0..1, ten classes."""
    X, y = load_digits(return_X_y=True)
    return Split(*train_test_split(X / 16, y, test_size=0.5, random_state=0, stratify=y))


def ratings(n: int = 20_000, n_users: int = 300, n_items: int = 200) -> Split:
    """One-hot [user, item] and ratings of 1 to 5 stars: habits of both, and taste in between."""
    rng = np.random.default_rng(0)
    pairs = np.column_stack([rng.integers(0, n_users, n), rng.integers(0, n_items, n)])
    user, item = pairs.T
    users, items = rng.standard_normal((n_users, 4)), rng.standard_normal((n_items, 4))
    liking = (users[user, :3] * items[item, :3]).sum(axis=1) + users[user, 3] + items[item, 3]
    liking += 0.5 * rng.standard_normal(n)
    stars = 1 + np.searchsorted(np.quantile(liking, [0.06, 0.17, 0.44, 0.79]), liking)
    X = OneHotEncoder().fit_transform(pairs)
    return Split(*train_test_split(X, stars, test_size=0.25, random_state=0))


def compare_on_digits(data: Split) -> PolynomialNetworkClassifier:
    """Test accuracy of every way, and what the model keeps."""
    n, d = data.X.shape
    logistic = LogisticRegression(max_iter=1000)
    network = PolynomialNetworkClassifier(random_state=0)
    rows: tuple[tuple[str, Any, Callable[[Any], str]], ...] = (
        ("fastpoly network", network, lambda e: f"{e.n_components_} basis vectors"),
        ("linear logistic regression", logistic, lambda e: f"{d} features"),
        (
            "PolynomialFeatures + logistic",
            make_pipeline(PolynomialFeatures(2), LogisticRegression(max_iter=200)),
            lambda e: f"{e[0].n_output_features_} features",
        ),
        (
            "SVC, quadratic kernel",
            SVC(kernel="poly", degree=2, coef0=1.0, gamma=1.0, C=1.0),
            lambda e: f"{len(e.support_)} support vectors",
        ),
        (
            "Nystroem + logistic",
            make_pipeline(
                Nystroem(
                    kernel="poly", degree=2, coef0=1.0, gamma=1.0, n_components=30, random_state=0
                ),
                LogisticRegression(max_iter=1000),
            ),
            lambda e: f"{e[0].components_.shape[0]} landmarks",
        ),
    )
    print(f"digits: {len(np.unique(data.y))} classes, {n} training rows, {d} features")
    print(f"{'model':<32}{'test accuracy':>14}{'fit seconds':>13}   {'keeps'}")
    for name, model, size in rows:
        seconds = timed_fit(model, data)
        accuracy = model.score(data.X_test, data.y_test)
        print(f"{name:<32}{accuracy:>14.3f}{seconds:>13.2f}   {size(model)}")
    return network


def compare_on_ratings(data: Split) -> FactorizationMachineOrdinalRegressor:
    """Test RMSE of every way."""
    n, d = data.X.shape
    machine = FactorizationMachineOrdinalRegressor(random_state=0)
    products = PolynomialFeatures(2, interaction_only=True, include_bias=False)
    rows = (
        ("fastpoly ordinal machine", machine),
        ("ridge: user + item", Ridge(alpha=1.0)),
        ("PolynomialFeatures + ridge", make_pipeline(products, Ridge(alpha=1.0))),
    )
    print(f"ratings: 1 to 5 stars, {n} training rows, {d} one-hot features")
    print(f"{'model':<32}{'test RMSE':>14}{'fit seconds':>13}")
    mean = np.full(len(data.y_test), data.y.mean())
    print(f"{'the mean rating':<32}{rmse(data.y_test, mean):>14.3f}{0:>13.2f}")
    for name, model in rows:
        seconds = timed_fit(model, data)
        error = rmse(data.y_test, model.predict(data.X_test))
        print(f"{name:<32}{error:>14.3f}{seconds:>13.2f}")
    return machine


def timed_fit(model: Any, data: Split) -> float:
    begun = perf_counter()
    model.fit(data.X, data.y)
    return perf_counter() - begun


def draw(
    network: PolynomialNetworkClassifier,
    data: Split,
    machine: FactorizationMachineOrdinalRegressor,
    stars: Split,
    picture: Path,
) -> str:
    """Save the picture; what to tell of it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return 'no picture: it needs matplotlib, which comes with pip install ".[plot]"'
    figure = Figure(figsize=(11, 6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(2.2, 1))
    left, right = above.subplots(1, 2)
    accuracy = [
        (prediction == data.y_test).mean() for prediction in network.staged_predict(data.X_test)
    ]
    left.plot(network.history_["n_components"], accuracy, marker=".")
    left.set(xlabel="number of basis vectors", ylabel="test accuracy", title="digits")
    errors = [rmse(stars.y_test, levels) for levels in machine.staged_predict(stars.X_test)]
    right.plot(machine.history_["n_components"], errors, marker=".")
    right.set(xlabel="number of basis vectors", ylabel="test RMSE", title="ratings")
    below.suptitle("digits: the basis vectors with the largest weights, as images")
    largest = np.argsort(-np.linalg.norm(network.output_weights_, axis=1))[:10]
    for axes, h in zip(below.subplots(1, 10), network.components_[largest], strict=False):
        limit = np.abs(h).max()
        axes.imshow(h.reshape(8, 8), cmap="RdBu_r", vmin=-limit, vmax=limit)
        axes.set_axis_off()
    figure.savefig(picture, dpi=100)
    return f"picture: {picture}"


if __name__ == "__main__":
    main()
