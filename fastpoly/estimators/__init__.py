"""The scikit-learn layer; the only place that imports scikit-learn."""

from fastpoly.estimators.classifier import (
    FactorizationMachineClassifier,
    PolynomialNetworkClassifier,
)
from fastpoly.estimators.encoder import TableEncoder
from fastpoly.estimators.ordinal import (
    FactorizationMachineOrdinalRegressor,
    PolynomialNetworkOrdinalRegressor,
)
from fastpoly.estimators.posterior import PosteriorAverage
from fastpoly.estimators.regressor import (
    FactorizationMachineRegressor,
    PolynomialNetworkRegressor,
)
from fastpoly.estimators.search import PathSearchCV

__all__ = [
    "FactorizationMachineClassifier",
    "FactorizationMachineOrdinalRegressor",
    "FactorizationMachineRegressor",
    "PathSearchCV",
    "PolynomialNetworkClassifier",
    "PolynomialNetworkOrdinalRegressor",
    "PolynomialNetworkRegressor",
    "PosteriorAverage",
    "TableEncoder",
]
