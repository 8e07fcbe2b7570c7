"""The scikit-learn layer; the only place that imports scikit-learn."""

from fastpoly.estimators.classifier import (
    FactorizationMachineClassifier,
    PolynomialNetworkClassifier,
)
from fastpoly.estimators.ordinal import (
    FactorizationMachineOrdinalRegressor,
    PolynomialNetworkOrdinalRegressor,
)
from fastpoly.estimators.regressor import (
    FactorizationMachineRegressor,
    PolynomialNetworkRegressor,
)

__all__ = [
    "FactorizationMachineClassifier",
    "FactorizationMachineOrdinalRegressor",
    "FactorizationMachineRegressor",
    "PolynomialNetworkClassifier",
    "PolynomialNetworkOrdinalRegressor",
    "PolynomialNetworkRegressor",
]
