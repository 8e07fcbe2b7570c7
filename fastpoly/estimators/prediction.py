"""Prediction from a fitted model, and from the models of earlier stages of training."""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from fastpoly.decoding import decision_values, log_probabilities, predictions, probabilities
from fastpoly.estimators.data import (
    SMALL_DATA_ENTRIES,
    checked_csr,
    default_threads,
    explained_text,
)
from fastpoly.model import PolyModel
from fastpoly.problem import has_log_odds
from fastpoly.rows.format import replacing
from fastpoly.rows.shards import FeatureNames, Shards
from fastpoly.rows.statistics import Scaling
from fastpoly.state import Model
from fastpoly.storage.checkpoint import Stages

Floats = NDArray[np.float64]


def has_probabilities(estimator: "WithProbabilities") -> bool:
    """A condition for `available_if`: the outputs of the estimator are log odds."""
    estimator._can_have_probabilities()
    if not has_log_odds(estimator.loss):
        raise AttributeError(
            f'predict_proba needs loss="logistic", or an object whose log_odds is True, not '
            f"{estimator.loss!r}"
        )
    return True


class Predictor(BaseEstimator):
    """The methods of a fitted estimator, from its `model_` and its `_stages`.

    Subclasses define `_task`, the kind of targets of the `PolyModel`, which decodes its outputs.
    """

    _activation: str
    _task: str
    _scaling: Scaling
    _stages: Stages
    _stored_names: FeatureNames | None = None  # of the features of shards
    model_: PolyModel

    def _snapshot(self) -> Self:
        """A copy of this estimator that a `fit` in another thread does not change."""
        return copy.copy(self)

    def _validated(self, X: Any) -> Any:
        check_is_fitted(self, "model_")
        with explained_text(X):
            return validate_data(
                self, checked_csr(X), accept_sparse="csr", dtype=[np.float64, np.float32],
                reset=False,
            )  # fmt: skip

    def _threads(self, X: Any) -> int | None:
        return default_threads(X) if self.n_threads is None else self.n_threads

    def _outputs_of(self, X: Any) -> tuple[int, Callable[[PolyModel], Iterator[Floats]]]:
        """The number of rows, and a function from a model to outputs, one part of the rows each."""
        check_is_fitted(self, "model_")
        if isinstance(X, Shards):
            return sum(shard.n_own_rows for shard in X), partial(self._shard_outputs, X)
        X = self._validated(X)
        n_threads = self._threads(X)
        return X.shape[0], lambda model: iter([model.decision(X, n_threads=n_threads)])

    def _shard_outputs(self, shards: Shards, model: PolyModel) -> Iterator[Floats]:
        """The outputs of rows in files, one shard at a time."""
        for shard in shards:
            yield model.decision(shard.matrix(model.augment), self.n_threads)[shard.own_rows()]

    def _predict(self, O: Floats) -> NDArray:
        """Predictions from outputs (n, m)."""
        model = self.model_
        return predictions(O, model.task, model.classes, model.level_values)

    def _decision(self, O: Floats) -> Floats:
        """The decision function from outputs (n, m)."""
        return decision_values(O, self.model_.task)

    def _apply(self, form: Callable[[Floats], NDArray], X: Any, out: Any = None) -> NDArray:
        """What `form` makes of the outputs (n, m); of shards, one shard's outputs at a time."""
        n, outputs = self._outputs_of(X)
        return joined(map(form, outputs(self.model_)), n, out)

    def _staged(self, form: Callable[[Floats], NDArray], X: Any) -> Iterator[NDArray]:
        """The same for the model of every stage."""
        n, outputs = self._outputs_of(X)
        for i in range(len(self._stages)):
            stage = self._stages[i]
            yield joined(map(form, outputs(self._poly_model(stage))), n)

    def predict(self, X: Any, out: str | os.PathLike[str] | None = None) -> NDArray:
        """Predict targets, in the form of the y of `fit`; for ordinal levels, the expected level.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards
            Shards are predicted one at a time, in the order of their rows, by this process.
        out : str or path-like, optional
            A .npy file for the predictions, which are then mapped from the file.

        Returns
        -------
        ndarray, (n,) or (n, m)
        """
        now = self._snapshot()
        return now._apply(now._predict, X, out)

    def staged_predict(self, X: Any) -> Iterator[NDArray]:
        """Yield the predictions after each entry of `history_`.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)

        Yields
        ------
        ndarray
            Predictions in the form of `predict`; the last ones are those of `predict`.
        """
        now = self._snapshot()
        return now._staged(now._predict, X)

    def staged_decision_function(self, X: Any) -> Iterator[Floats]:
        """Yield the outputs after each entry of `history_`.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)

        Yields
        ------
        ndarray, (n,) or (n, m)
        """
        now = self._snapshot()
        return now._staged(now._decision, X)

    def interaction_matrix(self, output: Any = None) -> Floats:
        """The quadratic part of an output as a symmetric matrix C: it equals x'Cx.

        Parameters
        ----------
        output : class, level, name or position
            For a classifier, a class of `classes_`. For ordinal levels, the level (the output is
            whether y is at most that level) or "<= level". Otherwise a column name of y, or a
            position. It may be left out if there is only one output. With two classes the default
            is the second one.

        Returns
        -------
        ndarray, (d, d)
        """
        check_is_fitted(self, "model_")
        return self.model_.interaction_matrix(self._output_position(output))

    def top_interactions(
        self, output: Any = None, k: int = 10, *, standardized: bool = False
    ) -> list[tuple]:
        """The k pairs of features with the largest |coefficient of x_i x_j| in an output.

        Parameters
        ----------
        output : class, level, name or position
            As in `interaction_matrix`.
        k : int
        standardized : bool
            Whether coefficients refer to features (and, for the squared loss, targets) in standard
            units, so that they can be compared, or to the original ones.

        Returns
        -------
        list of tuples (i, j, coefficient)
            i and j are feature names if `fit` saw names, such as "user=3" for a category of
            shards, else positions.
        """
        check_is_fitted(self, "model_")
        model = self._standard_model() if standardized else self.model_
        found = model.top_interactions(self._output_position(output), k)
        names = self._feature_names()
        if names is None or model.feature_names is not None:
            return found
        return [(names[i], names[j], coefficient) for i, j, coefficient in found]

    def _feature_names(self) -> Sequence[str] | None:
        """The names of the features, if `fit` saw any."""
        names = getattr(self, "feature_names_in_", None)
        return self._stored_names if names is None else list(map(str, names))

    def _standard_model(self) -> PolyModel:
        """The model of features and targets in standard units."""
        model = self._scaling.unfold(self.model_.parameters(), self._activation)
        return self._poly_model(model)

    @property
    def feature_importances_(self) -> Floats:
        """How much each feature matters, (d,), adding up to 1.

        The importance of a feature is the root of the sum of squares, over outputs, of the
        coefficients of all terms with the feature. Features are in units of their deviation (of
        their largest |x| where they are not centered; not scaled with standardize=False).
        """
        check_is_fitted(self, "model_")
        model, total = self._standard_model(), np.zeros(self.n_features_in_)
        F = model.H[:, model.augment :]
        pair = 1 if self._activation == "anova" else 2
        for c in range(model.n_outputs):
            # The rows of C = F' diag(v) F have |C_j|^2 = f_j' diag(v) F F' diag(v) f_j, and the
            # coefficient of x_i x_j is pair * C_ij.
            v = model.V[:, c, None]
            squares = np.einsum("rj,rj->j", F, (v * (F @ F.T) * v.T) @ F)
            own = (v[:, 0] @ F**2) ** 2
            products = pair**2 * np.maximum(squares - own, 0)
            total += products + (own if self._activation == "squared" else 0)
            total += model.linear_terms(c) ** 2
        importances = np.sqrt(total)
        largest = importances.sum()
        return importances / largest if largest else importances

    def _output_position(self, output: Any) -> Any:
        """The position or the name by which `PolyModel` knows an output."""
        if output is not None:
            return output
        if self.model_.n_outputs > 1:
            raise ValueError(
                f"there are {self.model_.n_outputs} outputs; say which one, by its position"
                + (f" or its name: {self.model_.output_names}" if self.model_.output_names else "")
            )
        return 0

    def _with_model(self, model: Model) -> Self:
        """A copy of this estimator that predicts with another model."""
        other = copy.copy(self)
        other._set_model(model)
        return other

    def _set_model(self, model: Model) -> None:
        """Set the model and the attributes that are its parts."""
        self.model_ = poly = self._poly_model(model)
        self.components_, self.output_weights_, self.intercept_ = poly.H, poly.V, poly.intercept
        self.n_components_ = poly.n_components
        vars(self).pop("linear_coef_", None)
        if poly.linear is not None:
            self.linear_coef_ = poly.linear

    def _poly_model(self, model: Model) -> PolyModel:
        names = self._feature_names()
        if names is self._stored_names and names is not None and len(names) > SMALL_DATA_ENTRIES:
            names = None  # it takes a microsecond per name to make them, for every round
        return PolyModel(
            model.H, model.V, model.intercept, None if model.linear is None else model.linear.T,
            activation=self._activation, augment=model.H.shape[1] > self.n_features_in_,
            feature_names=names,
            output_names=self._output_names(), task=self._task,
            classes=None if self._task == "multilabel" else getattr(self, "classes_", None),
            level_values=self._level_values(),
            log_odds=self._task in ("regression", "rates") or has_log_odds(self.loss),
        )  # fmt: skip

    def _output_names(self) -> list[str] | None:
        return None

    def _level_values(self) -> Floats | None:
        """The numbers that ordinal levels stand for, where they are not the default."""
        return None


class WithProbabilities(Predictor):
    """The methods of estimators whose outputs may be log odds of classes, labels or levels."""

    def _can_have_probabilities(self) -> None:
        """Raise AttributeError if `predict_proba` makes no sense for this y."""

    @available_if(has_probabilities)
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes, labels or levels.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards

        Returns
        -------
        ndarray, (n, len(classes_))
            Rows sum to 1. For multi-label y they do not: each entry is the probability of a label.
        """
        now = self._snapshot()
        return now._apply(lambda O: probabilities(O, now._task), X)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of the probabilities of `predict_proba`; -inf where a level has none.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards

        Returns
        -------
        ndarray, (n, len(classes_))
        """
        now = self._snapshot()
        return now._apply(lambda O: log_probabilities(O, now._task), X)

    @available_if(has_probabilities)
    def staged_predict_proba(self, X: Any) -> Iterator[Floats]:
        """Yield the probabilities after each entry of `history_`.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)

        Yields
        ------
        ndarray, (n, len(classes_))
        """
        now = self._snapshot()
        return now._staged(lambda O: probabilities(O, now._task), X)


def joined(parts: Iterator[NDArray], n: int, out: str | os.PathLike[str] | None = None) -> NDArray:
    """Parts of n rows in one array, or in one that is mapped from a new file `out`.

    The file appears when it is complete; a file that was there before stays as it was for those who
    have mapped it.
    """
    if out is not None:
        with replacing(out) as file:
            for i, part in enumerate(parts):
                if i == 0:
                    if part.dtype.hasobject:
                        raise ValueError("out can hold numbers or text, not objects; omit it")
                    head = {"descr": npy.dtype_to_descr(part.dtype), "fortran_order": False}
                    npy.write_array_header_1_0(file, {**head, "shape": (n, *part.shape[1:])})
                file.write(np.ascontiguousarray(part).data)
        return np.load(out, mmap_mode="r+")
    result, first = None, 0
    for part in parts:
        if len(part) == n:
            return part
        if result is None:
            result = np.empty((n, *part.shape[1:]), part.dtype)
        result[first : first + len(part)] = part
        first += len(part)
    return result
