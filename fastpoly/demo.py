"""A short demonstration: `fastpoly-demo`.

An ordinal recommender and a classifier of vibrations, each compared with scikit-learn. Prints two
tables and saves a picture, in a few seconds. Both data sets are generated, so that nothing has to
be downloaded, and they are of the kind that these models are made for; bench/ has data of many
kinds. Models keep their default parameters where these work, and none is tuned on the test rows.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any, NamedTuple

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

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PICTURE = "fastpoly-demo.png"

# States of a bearing, and the frequencies at which it vibrates, in periods per window: the
# frequency of the shaft, and that of a fault.
STATES = {"sound": (4,), "inner ring": (4, 11), "outer ring": (4, 12), "ball": (4, 14)}


class Split(NamedTuple):
    """Training and test rows."""

    X: Any
    X_test: Any
    y: NDArray
    y_test: NDArray


class Way(NamedTuple):
    """A model, and a description of what it stores after fitting."""

    name: str
    model: Any
    keeps: Callable[[Any], str]


class Result(NamedTuple):
    """One row of a table."""

    name: str
    scores: tuple[float, ...]
    fit_seconds: float


def main(arguments: list[str] | None = None) -> None:
    """Train, compare, print, draw."""
    parser = argparse.ArgumentParser("fastpoly-demo", description="Demonstration of fastpoly.")
    parser.add_argument("--picture", type=Path, default=Path(PICTURE), help="where to save it")
    picture = parser.parse_args(arguments).picture
    if problem := why_not_saved(picture):
        parser.error(f"--picture {picture}: {problem}")
    print("seconds are CPU seconds; BLAS and OpenMP are held to one thread\n")
    with threadpool_limits(1):
        recommenders = compare_recommenders(ratings())
        print()
        data = vibrations()
        network = PolynomialNetworkClassifier(random_state=0)
        classifiers = compare_classifiers(network, data)
        print()
        print(draw(recommenders, classifiers, network, picture))


def why_not_saved(picture: Path) -> str | None:
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


class Ratings(NamedTuple):
    """One-hot [user, item] rows and their stars; also the numbers of users and items, (n, 2).

    `expected_test` is what the model that generated the test rows would predict.
    """

    split: Split
    pairs: NDArray
    pairs_test: NDArray
    expected_test: NDArray


def ratings(n: int = 30_000, n_users: int = 400, n_items: int = 300) -> Ratings:
    """Ratings of 1 to 5 stars: habits of users, quality of items, taste, and much noise."""
    rng, noise = np.random.default_rng(0), 1.5
    pairs = np.column_stack([rng.integers(0, n_users, n), rng.integers(0, n_items, n)])
    user, item = pairs.T
    users, items = rng.standard_normal((n_users, 4)), rng.standard_normal((n_items, 4))
    liking = (users[user, :3] * items[item, :3]).sum(axis=1) + users[user, 3] + items[item, 3]
    felt = liking + noise * rng.standard_normal(n)
    cuts = np.quantile(felt, [0.06, 0.17, 0.44, 0.79])
    stars = 1 + np.searchsorted(cuts, felt)
    expected = 1 + ndtr((liking[:, None] - cuts) / noise).sum(axis=1)
    parts = train_test_split(
        OneHotEncoder().fit_transform(pairs), stars, pairs, expected, test_size=0.25, random_state=0
    )
    return Ratings(Split(*parts[:4]), parts[4], parts[5], parts[7])


def vibrations(n: int = 6000, length: int = 64) -> Split:
    """Windows of a noisy signal, and the state of the bearing that it was measured on.

    A window begins at any time, so the phases are random and the mean of every sample is 0 in every
    state. The information is in the energy at a frequency, which is a sum of two squares.
    """
    rng, time = np.random.default_rng(0), np.arange(length)
    names = np.array(list(STATES))
    states = rng.integers(0, len(names), n)
    X = 0.7 * rng.standard_normal((n, length))
    for state, frequencies in enumerate(STATES.values()):
        rows = np.flatnonzero(states == state)
        for frequency in frequencies:
            amplitude, phase = rng.gamma(8, 1 / 8, len(rows)), rng.uniform(0, 2 * np.pi, len(rows))
            periods = frequency * rng.normal(1, 0.02, len(rows)) / length
            X[rows] += amplitude[:, None] * np.sin(
                2 * np.pi * periods[:, None] * time + phase[:, None]
            )
    y = names[states]
    return Split(*train_test_split(X, y, test_size=0.5, random_state=0, stratify=y))


def compare_recommenders(data: Ratings) -> list[Result]:
    """Print the test RMSE and nDCG@5 of every way to predict a rating."""
    split, (n, d) = data.split, data.split.X.shape
    users = data.pairs_test[:, 0]
    products = PolynomialFeatures(2, interaction_only=True, include_bias=False)

    def scores(prediction: NDArray) -> tuple[float, float]:
        return rmse(split.y_test, prediction), ndcg(split.y_test, prediction, users, k=5)

    def scored(model: Any, X: Any) -> tuple[float, float]:
        return scores(model.predict(X))

    machine = FactorizationMachineOrdinalRegressor(random_state=0)
    ways = (
        Way("fastpoly ordinal machine", machine, lambda e: f"{e.n_components_} basis vectors"),
        Way("ridge: user + item", Ridge(), lambda e: f"{d} weights"),
        Way(
            "products + ridge",
            make_pipeline(products, Ridge()),
            lambda e: f"{e[0].n_output_features_} weights",
        ),
        Way("Nystroem + ridge", make_pipeline(quadratic_landmarks(), Ridge()), landmarks),
    )
    trees = Way("gradient boosting", HistGradientBoostingRegressor(random_state=0), rounds)
    print(f"ratings, 1 to 5 stars: {n} to train, {len(users)} to test; {d} one-hot features")
    heading("test RMSE", "nDCG@5")
    found = [compared(way, split, scored) for way in ways]
    # Trees take the numbers of users and items, which they can split.
    numbers = split._replace(X=data.pairs, X_test=data.pairs_test)
    found.append(compared(trees, numbers, scored))
    line("best possible", *scores(data.expected_test))  # with the taste behind the data
    return found


def compare_classifiers(network: PolynomialNetworkClassifier, data: Split) -> list[Result]:
    """Print the test accuracy of every way to classify a window; this also fits the network."""
    n, d = data.X.shape

    def scored(model: Any, X: Any) -> tuple[float]:
        return (model.score(X, data.y_test),)

    logistic = LogisticRegression(max_iter=1000)
    ways = (
        Way("fastpoly network", network, lambda e: f"{e.n_components_} basis vectors"),
        Way(
            "logistic regression",
            make_pipeline(StandardScaler(), logistic),
            lambda e: f"{e[-1].coef_.size} weights",
        ),
        Way(
            "products + logistic",
            make_pipeline(PolynomialFeatures(2), StandardScaler(), logistic),
            lambda e: f"{e[-1].coef_.size} weights",
        ),
        Way(
            "SVC, quadratic kernel",
            make_pipeline(StandardScaler(), SVC(kernel="poly", degree=2, coef0=1.0)),
            lambda e: f"{len(e[-1].support_)} support vectors",
        ),
        Way(
            "Nystroem + logistic",
            make_pipeline(StandardScaler(), quadratic_landmarks(), logistic),
            landmarks,
        ),
        Way("gradient boosting", HistGradientBoostingClassifier(random_state=0), rounds),
    )
    print(
        f"vibrations, {len(STATES)} states of a bearing: {n} windows of {d} samples to train, "
        f"{len(data.y_test)} to test"
    )
    heading("accuracy")
    return [compared(way, data, scored) for way in ways]


def quadratic_landmarks() -> Nystroem:
    return Nystroem(kernel="poly", degree=2, coef0=1.0, n_components=300, random_state=0)


def landmarks(pipeline: Any) -> str:
    return f"{pipeline[-2].components_.shape[0]} landmarks"


def rounds(model: Any) -> str:
    return f"{model.n_iter_} rounds of trees"


def compared(way: Way, data: Split, scored: Callable[[Any, Any], tuple[float, ...]]) -> Result:
    """Fit, score, and print a row."""
    begun = process_time()
    way.model.fit(data.X, data.y)
    fit_seconds, begun = process_time() - begun, process_time()
    scores = scored(way.model, data.X_test)
    score_seconds = process_time() - begun
    line(way.name, *scores, times=(fit_seconds, score_seconds), keeps=way.keeps(way.model))
    return Result(way.name, scores, fit_seconds)


def heading(*scores: str) -> None:
    columns = "".join(f"{name:>11}" for name in scores)
    print(f"{'model':<26}{columns}{'fit s':>9}{'predict s':>11}   keeps")


def line(
    name: str, *scores: float, times: tuple[float, float] | None = None, keeps: str = ""
) -> None:
    columns = "".join(f"{score:>11.3f}" for score in scores)
    spent = "" if times is None else f"{times[0]:>9.3f}{times[1]:>11.3f}"
    print(f"{name:<26}{columns}{spent}   {keeps}".rstrip(), flush=True)


def draw(
    recommenders: list[Result],
    classifiers: list[Result],
    network: PolynomialNetworkClassifier,
    picture: Path,
) -> str:
    """Save the picture, and return a message about it."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return 'no picture: it needs matplotlib, which comes with pip install ".[plot]"'
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(2, 3))
    ratings_axes, states_axes = above.subplots(1, 2)
    bars(ratings_axes, recommenders, "ratings: test RMSE (lower is better)")
    bars(states_axes, classifiers, "vibrations: test accuracy")
    map_axes, vector_axes = below.subplots(1, 2, width_ratios=(5, 6))
    display = InteractionDisplay.from_estimator(
        network,
        "inner ring",
        max_features=network.n_features_in_,
        ax=map_axes,
        interpolation="nearest",
    )
    every = np.arange(0, network.n_features_in_, 8)
    map_axes.set_xticks(every, every, rotation=0)
    map_axes.set_yticks(every, every)
    map_axes.set(xlabel="sample", ylabel="sample", title=f"interactions, {display.title}")
    draw_vectors(vector_axes, network)
    figure.savefig(picture, dpi=100)
    return f"picture: {picture}"


def bars(ax: "Axes", results: list[Result], title: str) -> None:
    """Draw one bar per model; the first one, fastpoly's, has another color."""
    names, values = [each.name for each in results], [each.scores[0] for each in results]
    colors = ["tab:red", *["0.75"] * (len(results) - 1)]
    drawn = ax.barh(names, values, color=colors)
    texts = [f"{each.scores[0]:.3f} in {each.fit_seconds:.2f} s" for each in results]
    ax.bar_label(drawn, texts, padding=4)
    ax.invert_yaxis()
    ax.set_xlim(0, 1.5 * max(values))  # with room for the labels
    ax.set_xticks([])
    ax.spines[["top", "right", "bottom"]].set_visible(False)
    ax.set_title(title, loc="left")


def draw_vectors(ax: "Axes", network: PolynomialNetworkClassifier) -> None:
    """Draw the basis vectors with the largest weights, one above the other."""
    H, V = network.components_, network.output_weights_
    largest = np.argsort(-np.linalg.norm(V, axis=1) * (H**2).sum(axis=1))[:8]
    for place, h in enumerate(H[largest]):
        ax.plot(0.4 * h / np.abs(h).max() - place, linewidth=1.2)
    ax.set(xlabel="sample", yticks=[], title="basis vectors with the largest weights")


if __name__ == "__main__":
    main()
