"""The methods of `defaults.py`: fastpoly's estimators and their rivals, with default parameters."""

from collections.abc import Callable

import scipy.sparse as sp
from default_sets import Table
from sklearn.base import BaseEstimator
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, PolynomialFeatures, StandardScaler
from sklearn.svm import SVC, SVR

import fastpoly

MOST_ROWS = 25_000  # largest number for an SVM, whose time grows with the square
MOST_PRODUCTS = 200_000  # largest number of columns of the linear model on products
QUADRATIC = {"kernel": "poly", "degree": 2, "coef0": 1.0}
SCALED = "network, scaled before"


def network(data: Table) -> BaseEstimator:
    names = {"numbers": "Regressor", "levels": "OrdinalRegressor"}
    kind = getattr(fastpoly, "PolynomialNetwork" + names.get(data.kind, "Classifier"))
    return kind(random_state=0, n_threads=1)


def machine(data: Table) -> BaseEstimator:
    names = {"numbers": "Regressor", "levels": "OrdinalRegressor"}
    kind = getattr(fastpoly, "FactorizationMachine" + names.get(data.kind, "Classifier"))
    return kind(random_state=0, n_threads=1)


def scaled(data: Table, *steps: BaseEstimator) -> BaseEstimator:
    """The steps after a scaler: to unit variance, or to at most 1 if X is sparse."""
    return make_pipeline(MaxAbsScaler() if sp.issparse(data.X) else StandardScaler(), *steps)


def linear(data: Table, *features: BaseEstimator) -> BaseEstimator:
    if data.kind == "numbers":
        return scaled(data, *features, Ridge())
    model = LogisticRegression(max_iter=2000)
    labels = data.kind == "labels"
    return scaled(data, *features, MultiOutputClassifier(model) if labels else model)


def products(data: Table) -> BaseEstimator | None:
    if data.X.shape[1] ** 2 > 2 * MOST_PRODUCTS:
        return None
    return linear(data, PolynomialFeatures(2, include_bias=False))


def support_vectors(data: Table) -> BaseEstimator | None:
    if data.X.shape[0] > MOST_ROWS:
        return None
    if data.kind == "classes":
        return scaled(data, SVC(**QUADRATIC))
    if data.kind == "labels":
        return scaled(data, MultiOutputClassifier(SVC(**QUADRATIC)))
    model = SVR(**QUADRATIC)  # also for levels: an SVC has neither their order nor probabilities
    if data.y.ndim == 2:
        model = MultiOutputRegressor(model)
    return TransformedTargetRegressor(scaled(data, model), transformer=StandardScaler())


def trees(data: Table) -> BaseEstimator:
    if data.kind == "numbers":
        model = HistGradientBoostingRegressor(random_state=0)
        return model if data.y.ndim == 1 else MultiOutputRegressor(model)
    model = HistGradientBoostingClassifier(random_state=0)
    return MultiOutputClassifier(model) if data.kind == "labels" else model


METHODS: dict[str, Callable[[Table], BaseEstimator | None]] = {
    "network": network,
    "machine": machine,
    "linear": linear,
    "products + linear": products,
    "quadratic SVM": support_vectors,
    "boosted trees": trees,
    SCALED: lambda data: scaled(data, network(data)),
}
OURS = "fastpoly"
RIVALS = [name for name in METHODS if name not in ("network", "machine", SCALED)]
FAST = [OURS, *(name for name in RIVALS if name != "quadratic SVM")]
# What is ranked among which methods: the SVM has no log-loss, and predicts far more slowly.
RANKINGS = {
    "score": ("score", [OURS, *RIVALS]),
    "score, without the SVM": ("score", FAST),
    "loss, without the SVM": ("loss", FAST),
}
