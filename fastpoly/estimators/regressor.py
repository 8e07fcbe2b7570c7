"""Regression with one or several outputs."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import validate_data

from fastpoly.estimators.base import PolyEstimator

Floats = NDArray[np.float64]


class PolyRegressor(RegressorMixin, PolyEstimator):
    """Base of the two regressors: y (n,) or (n, m), squared loss."""

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        tau: float | None = None,
        penalty: Any = "l1/l2",
        loss: Any = "squared",
        n_components: int = 50,
        refit: str | None = "output",
        fit_lower: str | None = "augment",
        alpha_linear: float = 1.0,
        solver: str = "auto",
        max_iter: int = 1000,
        tol: float = 1e-3,
        selection: str = "refine",
        early_stopping: bool = False,
        validation_fraction: float = 0.25,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        n_threads: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            alpha=alpha, tau=tau, penalty=penalty, loss=loss, n_components=n_components,
            refit=refit, fit_lower=fit_lower, alpha_linear=alpha_linear, solver=solver,
            max_iter=max_iter, tol=tol, selection=selection, early_stopping=early_stopping,
            validation_fraction=validation_fraction, n_iter_no_change=n_iter_no_change,
            warm_start=warm_start, n_threads=n_threads, verbose=verbose,
            random_state=random_state,
        )  # fmt: skip

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Any, Any]:
        return validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32],
            accept_large_sparse=True, multi_output=True, y_numeric=True, reset=reset,
        )  # fmt: skip

    def _encode_targets(self, y: Any, reset: bool) -> tuple[Floats, int]:
        self._one_dimensional = y.ndim == 1
        Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        return Y, Y.shape[1]

    def _model_loss(self) -> Any:
        if isinstance(self.loss, str) and self.loss != "squared":
            raise ValueError(f"unknown loss {self.loss!r}; known: 'squared'")
        return self.loss

    def _decide(self, O: Floats) -> Floats:
        return O[:, 0] if self._one_dimensional else O

    _predict = _decide

    def predict(self, X: Any) -> Floats:
        """Predicted values, (n,) or (n, m) as y was."""
        return self._predict(self._outputs(X))


class PolynomialNetworkRegressor(PolyRegressor):
    _activation = "squared"


class FactorizationMachineRegressor(PolyRegressor):
    _activation = "anova"
