"""Multi-output polynomial networks and factorization machines.

The core is imported at once. The scikit-learn layer is imported when one of its names is first
used, so that importing fastpoly imports neither scikit-learn nor matplotlib.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fastpoly.algorithm import conditional_gradient
from fastpoly.joined import Joined
from fastpoly.model import PolyModel
from fastpoly.path import alpha_max
from fastpoly.recommend import recommend
from fastpoly.rows import Design, Shards, write_shards
from fastpoly.selection import select_basis
from fastpoly.state import State

if TYPE_CHECKING:
    from fastpoly.estimators import (
        FactorizationMachineClassifier,
        FactorizationMachineOrdinalRegressor,
        FactorizationMachineRegressor,
        PathSearchCV,
        PolynomialNetworkClassifier,
        PolynomialNetworkOrdinalRegressor,
        PolynomialNetworkRegressor,
        PosteriorAverage,
        TableEncoder,
    )

__version__ = version("fastpoly")
__all__ = [
    "Design",
    "FactorizationMachineClassifier",
    "FactorizationMachineOrdinalRegressor",
    "FactorizationMachineRegressor",
    "Joined",
    "PathSearchCV",
    "PolyModel",
    "PolynomialNetworkClassifier",
    "PolynomialNetworkOrdinalRegressor",
    "PolynomialNetworkRegressor",
    "PosteriorAverage",
    "Shards",
    "State",
    "TableEncoder",
    "__version__",
    "alpha_max",
    "conditional_gradient",
    "recommend",
    "select_basis",
    "write_shards",
]


def __getattr__(name: str) -> Any:
    """Look up other names in `fastpoly.estimators`, which is imported on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module("fastpoly.estimators"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(__all__))
