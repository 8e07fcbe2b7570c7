"""What a fitted estimator gives, all of it by its `PolyModel`: predictions, features, meaning."""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fastpoly.contributions import Contributions
from fastpoly.estimators.data import TrainingRows, check_csr, check_tables, threads_for, validate
from fastpoly.interactions import importances
from fastpoly.joined import Joined
from fastpoly.kernels.checks import shown
from fastpoly.kernels.matrix import as_matrix
from fastpoly.model import PolyModel
from fastpoly.problem import has_log_odds
from fastpoly.rows.shards import Shards
from fastpoly.rows.statistics import Scaling
from fastpoly.state import Floats, Model, State
from fastpoly.storage.checkpoint import Stages
from fastpoly.storage.npz import replacing
from fastpoly.tables import Encoding

Method = Callable[[PolyModel, Any, int | None], NDArray]


class Documented:
    """A scikit-learn estimator whose HTML links to its page of the documentation."""

    _doc_link_module = "fastpoly"
    _doc_link_template = (
        "https://fastpoly.readthedocs.io/en/latest/api/fastpoly.{estimator_name}.html"
    )


def has_outputs(estimator: "Predictor") -> bool:
    """A condition for `available_if`: the outputs of the estimator mean something for its y."""
    estimator._check_outputs()
    return True


def has_probabilities(estimator: "Predictor") -> bool:
    """A condition for `available_if`: the outputs of the estimator are log odds."""
    if estimator._task in ("regression", "rates"):
        raise AttributeError("the outputs of a regressor have no probabilities")
    estimator._check_outputs()
    if not has_log_odds(estimator.loss):
        raise AttributeError(
            f'predict_proba needs loss="logistic", or an object whose log_odds is True, not '
            f"{estimator.loss!r}"
        )
    return True


class Predictor(Documented, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """The methods of a fitted estimator, from its `model_` and its `_stages`.

    Subclasses define `_task`, the kind of targets of the `PolyModel`, which decodes its outputs;
    `_metric(y, prediction, w)`; and `_output_labels`, by which users name outputs.
    """

    _activation: str
    _task: str
    _metric: Callable[..., float]
    _scaling: Scaling
    _stages: Stages
    _encoding: Encoding | None = None  # of the columns of a frame, or of shards
    _fields: NDArray[np.intp] | None = None  # whose columns exclude each other
    _column_names: Sequence[str] | None = None  # of joined tables
    _target_names: list[str] | None
    n_features_in_: int
    model_: PolyModel

    def _by_model(self, method: Method, X: Any, out: Any = None) -> NDArray:
        """What a method of `PolyModel` gives for rows in memory or, one by one, for shards."""
        now = copy.copy(self)  # a fit in another thread does not change it
        n, parts = now._rows_of(X)
        return join(map(now._shape, parts(method, now.model_)), n, out)

    def _by_stages(self, method: Method, X: Any) -> Iterator[NDArray]:
        """The same for the model of every stage."""
        now = copy.copy(self)
        n, parts = now._rows_of(X)
        models = (now._poly_model(now._stages[i]) for i in range(len(now._stages)))
        return (join(map(now._shape, parts(method, model)), n) for model in models)

    def _rows_of(self, X: Any) -> tuple[int, Callable[[Method, PolyModel], Iterator[NDArray]]]:
        """The number of rows, and how to apply a method of a model to them, part by part."""
        check_is_fitted(self, "model_")
        if isinstance(X, Shards):
            self._check_encoding(X)

            def parts(method: Method, model: PolyModel) -> Iterator[NDArray]:
                model = model if X.joined is None else X.joined.model_of(model)
                for shard in X:
                    rows = shard.matrix(model.augment)
                    yield method(model, rows, self.n_threads)[shard.own_rows()]

            return sum(shard.n_own_rows for shard in X), parts
        X = validate(self, X, reset=False)
        if isinstance(X, dict):  # columns of a table
            X = self._encoding.rows(X)
        (n, _), n_threads = X.shape, threads_for(X, self.n_threads)
        if isinstance(X, Joined):
            return n, lambda method, model: iter([method(X.model_of(model), X.codes, n_threads)])
        if self._encoding is not None:
            X = as_matrix(X, self.model_.augment)  # so that the model does not encode it again
        return n, lambda method, model: iter([method(model, X, n_threads)])

    def _check_encoding(self, shards: Shards) -> None:
        """Raise unless the codes of shards mean what they meant in training."""
        if shards.joined is not None:
            check_tables(self, shards.joined)
        known, own = self._encoding, shards.encoding
        if known is not None and known.form != "codes":
            raise ValueError(
                f"the model has plain columns of its table, and {shards!r} codes; give the table"
            )
        if known is not None and (own is None or not own.same_codes(known)):
            raise ValueError(
                f"{shards!r} has other levels or bins than the rows of the fit; give the table "
                "itself, or a part of the shards that were fitted (split, take)"
            )

    def _shape(self, values: NDArray) -> NDArray:
        """Predictions or outputs in the shape of the y of `fit`."""
        return values

    def predict(self, X: Any, out: str | os.PathLike[str] | None = None) -> NDArray:
        """Predict targets, in the form of the y of `fit`; for ordinal levels, the expected level.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards
            Shards are predicted one at a time, by this process.
        out : str or path-like, optional
            A .npy file for the predictions, which are then mapped from the file.

        Returns
        -------
        ndarray, (n,) or (n, m)
        """
        return self._by_model(PolyModel.predict, X, out)

    @available_if(has_outputs)
    def decision_function(self, X: Any) -> Floats:
        """Outputs of the model; of a regressor only if the y of `fit` was 2-D.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards

        Returns
        -------
        ndarray
            (n, m), one column per class or label; for two classes the output of the second minus
            that of the first, (n,). Of a regressor `predict`, or its logarithm for rates. For
            ordered levels the log odds of y <= level, for all levels but the last.
        """
        return self._by_model(PolyModel.decision_function, X)

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
        return self._by_model(PolyModel.predict_proba, X)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of `predict_proba`, of the same X; -inf where a level has none."""
        return self._by_model(PolyModel.predict_log_proba, X)

    def score(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """The share of rows whose class, or all of whose labels, are predicted; otherwise R^2.

        R^2 is a mean over outputs. For ordered levels it is that of the expected level; levels that
        are not numbers count by their ranks among the declared ones.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards
        y : array-like, (n,) or (n, m)
            It may be left out with shards, which hold targets and weights.
        sample_weight : array-like, (n,), optional

        Returns
        -------
        float
        """
        prediction, y = self.predict(X), check_csr(y)
        if y is None and isinstance(X, Shards):
            y, sample_weight = X.targets(), X.weights()
        return float(self._metric(y, prediction, sample_weight))

    def transform(self, X: Any) -> Floats:
        """The activations of the basis vectors: features that were learned, for another model.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards

        Returns
        -------
        ndarray, (n, n_components_)
            (h'x)^2 of a polynomial network, or the sum over i < j of h_i x_i h_j x_j of a
            factorization machine, for each basis vector h; `set_output` makes it a frame.
        """
        n, parts = self._rows_of(X)
        return join(parts(PolyModel.activations, self.model_), n)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def staged_predict(self, X: Any) -> Iterator[NDArray]:
        """Yield what `predict` would give for X after each entry of `history_`."""
        return self._by_stages(PolyModel.predict, X)

    def staged_decision_function(self, X: Any) -> Iterator[Floats]:
        """Yield the outputs of X after each entry of `history_`, (n,) or (n, m)."""
        return self._by_stages(PolyModel.decision_function, X)

    def interaction_matrix(self, output: Any = None) -> Floats:
        """The quadratic part of an output as a symmetric matrix C: it equals x'Cx.

        Parameters
        ----------
        output : class, level, name or position
            A class of `classes_`; a level (the output is whether y is at most that level) or
            "<= level"; otherwise a column name of y, or a position. It may be left out if there is
            one output, and with two classes, where it is the second one.

        Returns
        -------
        ndarray, (d, d)
        """
        check_is_fitted(self, "model_")
        return self.model_.interaction_matrix(self._output_position(output))

    def contributions(
        self, X: Any, output: Any = None, *, background: Any = None, pairs: bool = False
    ) -> Contributions:
        check_is_fitted(self, "model_")
        model = copy.copy(self)  # a fit in another thread does not change it
        X, background = (
            rows
            if rows is None or model.model_.encoding is not None
            else validate(model, rows, reset=False)
            for rows in (X, background)
        )
        X, background = (r.plain() if isinstance(r, Joined) else r for r in (X, background))
        c = None if output is None else model._output_position(output)
        return model.model_.contributions(X, c, background=background, pairs=pairs)

    contributions.__doc__ = PolyModel.contributions.__doc__

    def top_interactions(
        self, output: Any = None, k: int = 10, *, standardized: bool | None = None
    ) -> list[tuple]:
        """The k pairs of features with the largest |coefficient of x_i x_j| in an output.

        Pairs of levels of one field, which never occur together, are left out.

        Parameters
        ----------
        output : class, level, name or position
            As in `interaction_matrix`.
        k : int
        standardized : bool, optional
            Whether coefficients refer to features in units of their deviation, so that they can be
            compared, which is the default, or to the features as they are.

        Returns
        -------
        list of tuples (i, j, coefficient)
            i and j are feature names if `fit` saw names, such as "city=Oslo" for a level, else
            positions.
        """
        check_is_fitted(self, "model_")
        c = self._output_position(output)
        return self.model_.top_interactions(c, k, standardized=standardized)

    @property
    def feature_importances_(self) -> Floats:
        """How much each feature matters, (d,), adding up to 1.

        It is the root of the sum of squares, over outputs, of the coefficients of all terms with
        the feature, for features in units of their deviation.
        """
        check_is_fitted(self, "model_")
        terms, unit = self.model_.terms(standardized=None), self._scaling.target_unit
        unit = np.ones(self.model_.n_outputs) if unit is None else unit  # outputs can be compared
        return importances(terms.F, terms.V / unit, terms.w / unit[:, None], not terms.anova)

    @property
    def _width(self) -> int:
        """The number of features of the model: columns of X, or those of its encoding."""
        known = self._encoding
        return self.n_features_in_ if known is None else len(known.column_names)

    def _feature_names(self) -> Sequence[str] | None:
        """The names of the features, if `fit` saw any."""
        if self._encoding is not None:
            return self._encoding.column_names
        names = getattr(self, "feature_names_in_", self._column_names)
        return None if names is None else list(map(str, names))

    def _output_labels(self) -> tuple[str, list[Any]] | None:
        """What users call outputs ("class", "level"), and that of each; None for names only."""
        return None

    def _output_position(self, output: Any) -> Any:
        """The position or the name by which `PolyModel` knows an output."""
        kind, labels = self._output_labels() or ("output", [])
        names, m = self.model_.output_names, self.model_.n_outputs
        if output is None:
            if m == 1 or (kind == "class" and m == 2):
                return m - 1
            known = labels or f"a position below {m}" + (f" or a name of {names}" if names else "")
            raise ValueError(f"say for which {kind}: one of {known}")
        found = [i for i, each in enumerate(labels) if each == output]
        if found:
            return found[0]
        # A number is never a position where labels are numbers: class 1 may be the first of three.
        if output not in (names or ()) and (
            labels and (isinstance(output, str) or isinstance(labels[0], (int, float)))
        ):
            raise ValueError(f"there is no {kind} {shown(output)}; known: {labels}")
        return output

    def _with_model(self, model: Model) -> Self:
        """A copy of this estimator that predicts with another model."""
        other = copy.copy(self)
        other._set_model(other._poly_model(model))
        return other

    def _keep_background(self, data: TrainingRows) -> None:
        """Keep what `contributions` must know of the training rows, unless it overflows."""
        sparse = not data.stored and hasattr(data.X, "indices")
        moments = None if sparse else data.statistics.features
        center = None if moments is None else moments.mean
        with np.errstate(over="ignore", invalid="ignore"):
            sums = data.background_sums(self.components_[:, self.model_.augment :], center)
            if all(np.isfinite(each).all() for each in sums):
                self._set_model(self.model_._with_sums(sums, center))

    def _set_model(self, poly: PolyModel) -> None:
        """Set the model and the attributes that are its parts."""
        self.model_ = poly
        self.components_, self.output_weights_, self.intercept_ = poly.H, poly.V, poly.intercept
        self.n_components_ = poly.n_components
        vars(self).pop("linear_coef_", None)
        if poly.linear is not None:
            self.linear_coef_ = poly.linear

    def _set_fit(self, state: State, model: Model) -> None:
        """Set the attributes that describe a state; `model` is its model in the users' units."""
        self._set_model(self._poly_model(model))
        self.n_iter_ = max(1, state.n_iter)
        self.objective_ = state.objective
        self.violation_ = state.violation
        for name in ("alpha_", "alpha_linear_", "dual_gap_"):  # left from an earlier fit
            vars(self).pop(name, None)
        if self.tau is None:
            self.alpha_ = state.alpha
        else:
            self.dual_gap_ = state.gap
        if model.linear is not None:
            self.alpha_linear_ = state.alpha_linear

    def _poly_model(self, model: Model) -> PolyModel:
        names = None if self._encoding is not None else self._feature_names()
        return PolyModel(
            model.H, model.V, model.intercept, None if model.linear is None else model.linear.T,
            activation=self._activation, augment=model.H.shape[1] > self._width,
            feature_names=names, encoding=self._encoding, fields=self._fields,
            output_names=self._output_names(), task=self._task,
            classes=None if self._task == "multilabel" else getattr(self, "classes_", None),
            level_values=self._level_values(),
            log_odds=self._task in ("regression", "rates") or has_log_odds(self.loss),
        )  # fmt: skip

    def _check_outputs(self) -> None:
        """Raise AttributeError if outputs make no sense for this y."""

    def _level_values(self) -> Floats | None:
        """The numbers that ordinal levels stand for, where they are not the default."""
        return None


def join(parts: Iterator[NDArray], n: int, out: str | os.PathLike[str] | None = None) -> NDArray:
    """Parts of n rows in one array, or in one that is mapped from a new file `out`.

    The file appears when it is complete; whoever has mapped an earlier one keeps it.
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
    result, first = np.empty(0), 0
    for part in parts:
        if len(part) == n:
            return part
        if not first:
            result = np.empty((n, *part.shape[1:]), part.dtype)
        result[first : first + len(part)] = part
        first += len(part)
    return result
