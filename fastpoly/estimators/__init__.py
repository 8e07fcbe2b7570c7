"""The scikit-learn layer; the only place that imports scikit-learn."""

from fastpoly.estimators.models import (
    FactorizationMachineClassifier,
    FactorizationMachineOrdinalRegressor,
    FactorizationMachineRegressor,
    PolynomialNetworkClassifier,
    PolynomialNetworkOrdinalRegressor,
    PolynomialNetworkRegressor,
    TableEncoder,
)
from fastpoly.estimators.posterior import PosteriorAverage
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
