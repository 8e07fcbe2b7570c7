"""Prediction from a fitted model, and from the models on the way to it."""

import copy
from collections.abc import Iterator
from threading import current_thread, main_thread
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted, validate_data

from fastpoly.estimators.rows import SMALL, safe_rows
from fastpoly.estimators.stages import Stages
from fastpoly.model import PolyModel

Floats = NDArray[np.float64]


class Predictor(BaseEstimator):
    """What a fitted estimator can do with its `model_` and its `_stages`.

    Subclasses give `_predict` and `_decide`: from outputs (n, m) to predictions, and to the
    decision function.
    """

    _activation: str
    _stages: Stages
    model_: PolyModel

    def _whole(self) -> Self:
        """This estimator as it is now, whatever a `fit` in another thread makes of it."""
        return copy.copy(self)

    def _validated(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        return validate_data(
            self, safe_rows(X), accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )

    def _threads(self, X: Any) -> int | None:
        """One by default for small data, where waking threads costs more than they save, and in
        a thread that someone else started: they share the cores already."""
        if self.n_threads is not None:
            return self.n_threads
        small = X.shape[0] * X.shape[1] <= SMALL
        return 1 if small or current_thread() is not main_thread() else None

    def _outputs(self, X: Any) -> Floats:
        X = self._validated(X)
        return self.model_.decision(X, n_threads=self._threads(X))

    def _staged_outputs(self, X: Any) -> Iterator[Floats]:
        X = self._validated(X)
        for stage in self._stages:
            yield self._as_model(*stage).decision(X, n_threads=self._threads(X))

    def predict(self, X: Any) -> NDArray:
        """Predictions, in the form of the y of `fit`; of ordinal levels the expected level.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)

        Returns
        -------
        ndarray, (n,) or (n, m)
        """
        whole = self._whole()
        return whole._predict(whole._outputs(X))

    def staged_predict(self, X: Any) -> Iterator[NDArray]:
        """Yield the predictions after each step of training, the empty model first.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)

        Yields
        ------
        ndarray
            As `predict` returns them; the last one is what it returns.
        """
        whole = self._whole()
        return map(whole._predict, whole._staged_outputs(X))

    def staged_decision_function(self, X: Any) -> Iterator[Floats]:
        """Yield the outputs after each step of training, the empty model first.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)

        Yields
        ------
        ndarray, (n,) or (n, m)
        """
        whole = self._whole()
        return map(whole._decide, whole._staged_outputs(X))

    def interaction_matrix(self, output: int | str = 0) -> Floats:
        """The quadratic part of an output as a symmetric matrix C: it equals x'Cx.

        Parameters
        ----------
        output : int or str
            Its position, or its name: the class as a string, the column of a frame of targets,
            "<= level" of ordinal levels.

        Returns
        -------
        ndarray, (d, d)
        """
        check_is_fitted(self, "model_")
        return self.model_.interaction_matrix(output)

    def top_interactions(self, output: int | str = 0, k: int = 10) -> list[tuple]:
        """The k pairs of features with the largest |coefficient of x_i x_j| in an output.

        Parameters
        ----------
        output : int or str
            Its position, or its name, as in `interaction_matrix`.
        k : int

        Returns
        -------
        list of tuples (i, j, coefficient)
            i and j are feature names where `fit` saw them, else positions.
        """
        check_is_fitted(self, "model_")
        return self.model_.top_interactions(output, k)

    def _view(self, model: PolyModel) -> Self:
        """This estimator with another model, to predict with."""
        view = copy.copy(self)
        view._show(model)
        return view

    def _show(self, model: PolyModel) -> None:
        """Set the model and the attributes that are its parts."""
        self.model_ = model
        self.components_, self.coef_, self.intercept_ = model.H, model.V, model.intercept
        self.n_components_ = model.n_components
        vars(self).pop("linear_coef_", None)
        if model.linear is not None:
            self.linear_coef_ = model.linear

    def _stage_view(self, i: int) -> Self:
        """The estimator as a fit that stops at stage i would have left it."""
        view = self._view(self._as_model(*self._stages[i]))
        view._stages = self._stages.up_to(i)
        view.history_ = {name: values[: i + 1] for name, values in self.history_.items()}
        view.objective_ = float(view.history_["objective"][-1])
        view.violation_ = float(view.history_["violation"][-1])
        view.n_iter_ = max(1, min(i, self.n_iter_))
        return view

    def _as_model(
        self, H: Floats, V: Floats, intercept: Floats, linear: Floats | None
    ) -> PolyModel:
        names = getattr(self, "feature_names_in_", None)
        return PolyModel(
            H, V, intercept, None if linear is None else linear.T,
            activation=self._activation, augment=H.shape[1] > self.n_features_in_,
            feature_names=None if names is None else map(str, names),
            output_names=self._output_names(),
        )  # fmt: skip

    def _output_names(self) -> list[str] | None:
        return None
