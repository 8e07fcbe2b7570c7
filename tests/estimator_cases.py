"""The six estimators, and targets of each kind for one set of data."""

import numpy as np

import fastpoly

CLASSIFIERS = (fastpoly.PolynomialNetworkClassifier, fastpoly.FactorizationMachineClassifier)

REGRESSORS = (fastpoly.PolynomialNetworkRegressor, fastpoly.FactorizationMachineRegressor)

ORDINAL = (
    fastpoly.PolynomialNetworkOrdinalRegressor,
    fastpoly.FactorizationMachineOrdinalRegressor,
)

ALL = CLASSIFIERS + REGRESSORS + ORDINAL

# The units and the tolerance of the functional core.
CORE = {"standardize": False, "tol": 1e-3}

# The algorithm of the paper; the joint descent with as many rounds as that has.
PAPER = {"block": 1, "refit": "output"}
JOINT = {"block": 1, "refit": "full"}


def activation(cls):
    return "squared" if cls.__name__.startswith("PolynomialNetwork") else "anova"


def targets(cls, score):
    if cls in REGRESSORS:
        return score
    return np.digitize(score, [-0.5, 0.5])


def watching_scores(cls):
    """A subclass of an estimator, and the list of the (X, y) that are given to its `score`."""
    seen = []

    class Watched(cls):
        def score(self, X, y, sample_weight=None):
            seen.append((X, y))
            return super().score(X, y, sample_weight)

    return Watched, seen
