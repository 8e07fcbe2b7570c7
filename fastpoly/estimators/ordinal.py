"""Ordinal regression by reduction to binary outputs: is the level at most c, for every c?"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import RegressorMixin

from fastpoly.estimators.base import PolyEstimator

Floats = NDArray[np.float64]


def level_probabilities(O: Floats) -> Floats:
    """p(y = level) from the m - 1 outputs whose sigmoids are p(y <= level).

    Where these cross they are made monotone, half from below and half from above, so that the
    differences are not negative; they add up to 1.
    """
    cumulative = expit(O)
    rising = np.maximum.accumulate(cumulative, axis=1)
    falling = np.minimum.accumulate(cumulative[:, ::-1], axis=1)[:, ::-1]
    cumulative = (rising + falling) / 2
    ends = np.zeros((len(O), 1)), np.ones((len(O), 1))
    return np.diff(np.hstack([ends[0], cumulative, ends[1]]), axis=1)


class PolyOrdinalRegressor(RegressorMixin, PolyEstimator):
    """Base of the two ordinal regressors."""

    def _encode_targets(self, y: Any, reset: bool) -> tuple[Floats, int]:
        if y.ndim == 2:
            if y.shape[1] != 1:
                raise ValueError(f"y must hold one level a sample, got shape {y.shape}")
            y = y.ravel()
        levels = np.unique(y)
        if not reset and not np.array_equal(levels, self.classes_):
            raise ValueError("warm_start needs the levels of the earlier fit; refit without it")
        if len(levels) < 2:
            raise ValueError(f"y must have at least 2 levels, got only {levels[0]!r}")
        self.classes_ = levels
        code = np.searchsorted(levels, y)
        return np.where(code[:, None] <= np.arange(len(levels) - 1), 1.0, -1.0), len(levels) - 1

    def _model_loss(self) -> Any:
        if isinstance(self.loss, str) and self.loss != "logistic":
            raise ValueError(f"unknown loss {self.loss!r}; known: 'logistic'")
        return "binary_logistic" if isinstance(self.loss, str) else self.loss

    def _values(self) -> Floats:
        """The levels as numbers: themselves, or their ranks 1..m where they are not numbers."""
        if self.classes_.dtype.kind in "iuf":
            return self.classes_.astype(np.float64)
        return np.arange(1.0, len(self.classes_) + 1)

    def _predict(self, O: Floats) -> Floats:
        return level_probabilities(O) @ self._values()

    def predict(self, X: Any) -> Floats:
        """Expected level, (n,)."""
        return self._predict(self._outputs(X))

    def predict_proba(self, X: Any) -> Floats:
        """Probability of every level, (n, len(classes_))."""
        return level_probabilities(self._outputs(X))

    def decision_function(self, X: Any) -> Floats:
        """Log odds of y <= level for all levels but the last, (n, len(classes_) - 1)."""
        return self._outputs(X)


class PolynomialNetworkOrdinalRegressor(PolyOrdinalRegressor):
    _activation = "squared"


class FactorizationMachineOrdinalRegressor(PolyOrdinalRegressor):
    _activation = "anova"
