"""A short demonstration: `fastpoly-demo`.

An ordinal recommender and a classifier of vibrations, each compared with scikit-learn. Prints two
tables and saves a picture, in a few seconds. Both data sets are generated, and of the kind that
these models are made for; bench/ has data of many kinds. Models keep their default parameters where
these work, and none is tuned on the test rows.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC
from threadpoolctl import threadpool_limits

from fastpoly import FactorizationMachineOrdinalRegressor, PolynomialNetworkClassifier
from fastpoly.metrics import ndcg, rmse
from fastpoly.plotting import InteractionDisplay

# States of a bearing, and the frequencies at which it vibrates, in periods per window: the
# frequency of the shaft, and that of a fault.
STATES = {"sound": (4,), "inner ring": (4, 11), "outer ring": (4, 12), "ball": (4, 14)}

LANDMARKS = Nystroem(kernel="poly", degree=2, coef0=1.0, n_components=300, random_state=0)

Result = tuple[str, float, float]  # a name, its first score, and the CPU seconds of its fit


def main(arguments: list[str] | None = None) -> None:
    """Train, compare, print, draw."""
    parser = argparse.ArgumentParser("fastpoly-demo", description="Demonstration of fastpoly.")
    default = Path("fastpoly-demo.png")
    parser.add_argument("--picture", type=Path, default=default, help="where to save it")
    picture = parser.parse_args(arguments).picture
    if fault := path_fault(picture):
        parser.error(f"--picture {picture}: {fault}")
    print("seconds are CPU seconds; BLAS and OpenMP are held to one thread\n")
    with threadpool_limits(1):
        recommenders = compare_recommenders(*ratings())
        print()
        network = PolynomialNetworkClassifier(random_state=0)
        classifiers = compare_classifiers(network, *vibrations())
        print()
        print(draw(recommenders, classifiers, network, picture))


def path_fault(picture: Path) -> str | None:
    """What is wrong with the path, found before training; None if nothing is."""
    if picture.is_dir():
        return "is a folder; name a file in it"
    if not picture.parent.is_dir():
        return "its folder does not exist; create it first"
    if not os.access(picture if picture.exists() else picture.parent, os.W_OK):
        return "may not be written"
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None  # there will be no picture
    kinds = Figure().canvas.get_supported_filetypes()
    if picture.suffix and picture.suffix[1:].lower() not in kinds:
        return f"unknown format; known: {', '.join(sorted(kinds))}"
    return None


def ratings(n: int = 30_000, n_users: int = 400, n_items: int = 300) -> list[Any]:
    """Ratings of 1 to 5 stars: habits of users, quality of items, taste, and much noise.

    Returns training and test parts of the users and items (n, 2), of their one-hot rows, of the
    stars, and of the stars that the model behind the data expects.
    """
    rng, noise = np.random.default_rng(0), 1.5
    pairs = np.column_stack([rng.integers(0, n_users, n), rng.integers(0, n_items, n)])
    user, item = pairs.T
    users, items = rng.standard_normal((n_users, 4)), rng.standard_normal((n_items, 4))
    liking = (users[user, :3] * items[item, :3]).sum(axis=1) + users[user, 3] + items[item, 3]
    felt = liking + noise * rng.standard_normal(n)
    cuts = np.quantile(felt, [0.06, 0.17, 0.44, 0.79])
    stars = 1 + np.searchsorted(cuts, felt)
    expected = 1 + ndtr((liking[:, None] - cuts) / noise).sum(axis=1)
    one_hot = OneHotEncoder().fit_transform(pairs)
    return train_test_split(pairs, one_hot, stars, expected, test_size=0.25, random_state=0)


def vibrations(n: int = 6000, length: int = 64) -> list[NDArray]:
    """Windows (n, length) of a noisy signal, and the states of the bearings, to train and to test.

    A window begins at any time, so the phases are random and the mean of every sample is 0 in every
    state. The information is in the energy at a frequency, which is a sum of two squares.
    """
    rng, time = np.random.default_rng(0), np.arange(length)
    states = rng.integers(0, len(STATES), n)
    X = 0.7 * rng.standard_normal((n, length))
    for state, frequencies in enumerate(STATES.values()):
        rows = np.flatnonzero(states == state)
        for frequency in frequencies:
            amplitude, phase = rng.gamma(8, 1 / 8, len(rows)), rng.uniform(0, 2 * np.pi, len(rows))
            periods = frequency * rng.normal(1, 0.02, len(rows)) / length
            angles = 2 * np.pi * periods[:, None] * time + phase[:, None]
            X[rows] += amplitude[:, None] * np.sin(angles)
    y = np.array(list(STATES))[states]
    return train_test_split(X, y, test_size=0.5, random_state=0, stratify=y)


def compare_recommenders(
    pairs: NDArray, pairs_test: NDArray, X: Any, X_test: Any, y: NDArray, y_test: NDArray,
    expected: NDArray, expected_test: NDArray,
) -> list[Result]:  # fmt: skip
    """Print the test RMSE and nDCG@5 of every way to predict a rating."""

    def scores(prediction: NDArray) -> tuple[Any, ...]:
        return rmse(y_test, prediction), ndcg(y_test, prediction, pairs_test[:, 0], k=5)

    (n, d), one_hot = X.shape, (X, X_test)
    products = PolynomialFeatures(2, interaction_only=True, include_bias=False)
    print(f"ratings, 1 to 5 stars: {n} to train, {len(y_test)} to test; {d} one-hot features")
    line("model", "test RMSE", "nDCG@5", "fit s", "predict s")
    ways = {
        "fastpoly ordinal machine": (FactorizationMachineOrdinalRegressor(random_state=0), one_hot),
        "ridge: user + item": (Ridge(), one_hot),
        "products + ridge": (make_pipeline(products, Ridge()), one_hot),
        "Nystroem + ridge": (make_pipeline(LANDMARKS, Ridge()), one_hot),
        # Trees take the numbers of users and items, which they can split.
        "gradient boosting": (HistGradientBoostingRegressor(random_state=0), (pairs, pairs_test)),
    }
    found = [compare(name, *way, y, scores) for name, way in ways.items()]
    line("best possible", *scores(expected_test))  # with the taste behind the data
    return found


def compare_classifiers(
    network: PolynomialNetworkClassifier, X: NDArray, X_test: NDArray, y: NDArray, y_test: NDArray
) -> list[Result]:
    """Print the test accuracy of every way to classify a window; this also fits the network."""
    (n, d), states = X.shape, f"vibrations, {len(STATES)} states of a bearing"
    print(f"{states}: {n} windows of {d} samples to train, {len(y_test)} to test")
    line("model", "accuracy", "fit s", "predict s")
    scaler, logistic = StandardScaler(), LogisticRegression(max_iter=1000)
    ways = {
        "fastpoly network": network,
        "logistic regression": make_pipeline(scaler, logistic),
        "products + logistic": make_pipeline(PolynomialFeatures(2), scaler, logistic),
        "SVC, quadratic kernel": make_pipeline(scaler, SVC(kernel="poly", degree=2, coef0=1.0)),
        "Nystroem + logistic": make_pipeline(scaler, LANDMARKS, logistic),
        "gradient boosting": HistGradientBoostingClassifier(random_state=0),
    }
    accuracy = lambda prediction: ((prediction == y_test).mean(),)  # noqa: E731
    return [compare(name, model, (X, X_test), y, accuracy) for name, model in ways.items()]


def compare(
    name: str, model: Any, rows: tuple[Any, Any], y: NDArray, scores: Callable[..., tuple]
) -> Result:
    """Fit, score, and print a row; `rows` are those to train and to test."""
    begun = process_time()
    model.fit(rows[0], y)
    fitted = process_time()
    found = scores(model.predict(rows[1]))
    line(name, *found, fitted - begun, process_time() - fitted)
    return name, found[0], fitted - begun


def line(name: str, *columns: str | float) -> None:
    texts = (each if isinstance(each, str) else f"{each:.3f}" for each in columns)
    print(f"{name:<26}" + "".join(f"{text:>11}" for text in texts), flush=True)


def draw(recommenders: list[Result], classifiers: list[Result], network: Any, picture: Path) -> str:
    """Save the picture, and return a message about it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return "no picture: it needs matplotlib, which pip install matplotlib brings"
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(2, 3))
    titles = "ratings: test RMSE (lower is better)", "vibrations: test accuracy"
    compared = recommenders, classifiers
    for ax, title, results in zip(halves[0].subplots(1, 2), titles, compared, strict=True):
        names, scores, seconds = zip(*results, strict=True)
        bars = ax.barh(names, scores, color=["tab:red", *["0.75"] * (len(names) - 1)])
        labels = [f"{each:.3f} in {s:.2f} s" for each, s in zip(scores, seconds, strict=True)]
        ax.bar_label(bars, labels, padding=4)
        ax.invert_yaxis()
        ax.set(xlim=(0, 1.5 * max(scores)), xticks=[])  # with room for the labels
        ax.spines[["top", "right", "bottom"]].set_visible(False)
        ax.set_title(title, loc="left")
    map_axes, vector_axes = halves[1].subplots(1, 2, width_ratios=(5, 6))
    d = network.n_features_in_
    display = InteractionDisplay.from_estimator(
        network, "inner ring", max_features=d, ax=map_axes, interpolation="nearest"
    )
    every = np.arange(0, d, 8)
    map_axes.set_xticks(every, every, rotation=0)
    map_axes.set_yticks(every, every)
    map_axes.set(xlabel="sample", ylabel="sample", title=f"interactions, {display.title}")
    # The basis vectors with the largest weights, one above the other.
    H, V = network.components_, network.output_weights_
    largest = np.argsort(-np.linalg.norm(V, axis=1) * (H**2).sum(axis=1))[:8]
    for place, h in enumerate(H[largest]):
        vector_axes.plot(0.4 * h / np.abs(h).max() - place, linewidth=1.2)
    vector_axes.set(xlabel="sample", yticks=[], title="basis vectors with the largest weights")
    figure.savefig(picture, dpi=100)
    return f"picture: {picture}"


if __name__ == "__main__":
    main()
