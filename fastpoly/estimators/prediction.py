"""What a fitted estimator gives, all of it by its `PolyModel`: predictions, features, meaning."""

import copy
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fastpoly.contributions import Contributions
from fastpoly.estimators.data import TrainingRows, check_csr, in_columns, threads_for, validate
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
NUMBERS = ("regression", "rates")  # tasks of regressors


class Documented:
    """A scikit-learn estimator whose HTML links to its page of the documentation."""

    _doc_link_module = "fastpoly"
    _doc_link_template = (
        "https://fastpoly.readthedocs.io/en/latest/api/fastpoly.{estimator_name}.html"
    )


class Reader:
    """What estimators, and searches and averages of them, say of their fitted model."""

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
        model, _ = fitted_estimator(self)
        return model.model_.interaction_matrix(model._output_position(output))

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
            i and j are feature names, such as "city=Oslo" for a level, if `fit` saw names or a
            Pipeline gives some, else positions.
        """
        model, _ = fitted_estimator(self)
        c = model._output_position(output)
        return model.model_.top_interactions(c, k, standardized=standardized)

    def contributions(
        self, X: Any, output: Any = None, *, background: Any = None, pairs: bool = False
    ) -> Contributions:
        return contributions_of(self, X, output, background=background, pairs=pairs)

    contributions.__doc__ = PolyModel.contributions.__doc__


def fitted_estimator(estimator: Any) -> tuple["Predictor", list[Any]]:
    """The fitted estimator inside searches and Pipelines, and the transformers in front of it.

    Its model has the names that these transformers give to features.
    """
    model, heads = estimator, []
    while not isinstance(model, Predictor):
        if "estimator_" in getattr(model, "__dict__", ()):  # an average
            model = model.estimator_
        elif hasattr(model, "estimator") and hasattr(model, "refit"):  # a search
            check_is_fitted(model)
            if not hasattr(model, "best_estimator_"):
                raise ValueError("the search has refit=False and no best_estimator_ to show")
            model = model.best_estimator_
        elif isinstance(model, Pipeline):
            heads += [model[:-1]] if len(model) > 1 else []
            model = model[-1]
        else:
            raise TypeError(
                "one of fastpoly's estimators, a search or a Pipeline that ends with one is "
                f"needed, got {type(estimator).__name__}"
            )
    check_is_fitted(model, "model_")
    model = copy.copy(model)  # a fit in another thread does not change it
    names: Any = model._feature_names()
    if names is None and heads:
        try:
            for head in heads:
                names = head.get_feature_names_out(names)
        except (AttributeError, ValueError):  # the transformer gives no names
            names = None
    if names is not None and model.model_.feature_names is None:
        model.model_ = replace(model.model_, feature_names=list(map(str, names)))
    return model, heads


def contributions_of(
    estimator: Any, X: Any, output: Any, *, background: Any = None, pairs: bool = False
) -> Contributions:
    """`contributions` of the fitted estimator inside searches and Pipelines."""
    model, heads = fitted_estimator(estimator)

    def features(rows: Any) -> Any:
        for head in heads:
            rows = head.transform(rows)
        if model.model_.encoding is None:
            rows = validate(model, rows, reset=False)
        return rows.plain() if isinstance(rows, Joined) else rows

    c = None if output is None else model._output_position(output)
    background = None if background is None else features(background)
    return model.model_.contributions(features(X), c, background=background, pairs=pairs)


def has_outputs(estimator: "Predictor") -> bool:
    """A condition for `available_if`: the outputs of the estimator mean something for its y."""
    # scikit-learn forbids `decision_function` for regressors of a 1-D y, and asks before `fit`.
    if estimator._task in NUMBERS and estimator._one_dimensional:
        raise AttributeError("only after a fit with a 2-D y; `predict` gives the output of a 1-D y")
    if not estimator._has_levels:
        raise AttributeError(
            "y was continuous and no value of it occurred twice: there are no levels to give "
            "probabilities of; use `predict`, or round y to a scale of few levels"
        )
    return True


def has_probabilities(estimator: "Predictor") -> bool:
    """A condition for `available_if`: the outputs of the estimator are log odds."""
    if estimator._task in NUMBERS:
        raise AttributeError("the outputs of a regressor have no probabilities")
    if not has_log_odds(estimator.loss):
        raise AttributeError(
            f'predict_proba needs loss="logistic", or an object whose log_odds is True, not '
            f"{estimator.loss!r}"
        )
    return has_outputs(estimator)


class Predictor(
    Reader, Documented, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """The methods of a fitted estimator, from its `model_` and its `_stages`.

    Subclasses define `_task`, the kind of targets of the `PolyModel`, which decodes its outputs,
    and `_metric(y, prediction, w)`.
    """

    _activation: str
    _task: str
    _metric: Callable[..., float]
    _scaling: Scaling
    _stages: Stages
    _columns: NDArray[np.intp] | None = None  # those of the models in `_stages`; None: all
    _encoding: Encoding | None = None  # of the columns of a frame, or of shards
    _fields: NDArray[np.intp] | None = None  # whose columns exclude each other
    _column_names: Sequence[str] | None = None  # of joined tables
    _target_names: list[str] | None
    _one_dimensional = True  # whether y was (n,), where it holds numbers
    _has_levels = True  # whether ordered levels are fewer than rows
    n_features_in_: int
    model_: PolyModel

    def _applier(self, X: Any) -> Callable[..., NDArray]:
        """A function that applies a method of `PolyModel` to X: to shards, one by one.

        It takes the method, another model than the fitted one, and a file for what it returns.
        """
        now = copy.copy(self)  # a fit in another thread does not change it
        check_is_fitted(now, "model_")
        if isinstance(X, Shards):
            now._check_encoding(X)
            n = sum(shard.n_own_rows for shard in X)
        else:
            X = validate(now, X, reset=False)
            if isinstance(X, dict):  # columns of a table
                X = now._encoding.rows(X)
            n, n_threads = X.shape[0], threads_for(X, now.n_threads)
            if now._encoding is not None and not isinstance(X, Joined):
                X = as_matrix(X, now.model_.augment)  # so that the model does not encode it again

        def parts(method: Method, model: PolyModel) -> Iterator[NDArray]:
            if isinstance(X, Shards):
                model = model if X.joined is None else X.joined.model_of(model)
                for shard in X:
                    found = method(model, shard.matrix(model.augment), now.n_threads)
                    yield found[shard.own_rows()]
            elif isinstance(X, Joined):
                yield method(X.model_of(model), X.codes, n_threads)
            else:
                yield method(model, X, n_threads)

        def apply(method: Method, model: PolyModel | None = None, out: Any = None) -> NDArray:
            results = parts(method, now.model_ if model is None else model)
            if not now._one_dimensional:
                results = (found.reshape(len(found), -1) for found in results)
            return join(results, n, out)

        return apply

    def _widen(self, model: Model) -> Model:
        """A model of the columns of the fit as one of all columns."""
        return self._scaling._replace(span=self._columns).widen(model)

    def _by_stages(self, method: Method, X: Any) -> Iterator[NDArray]:
        """What a method of `PolyModel` gives for X, by the model of every stage."""
        now = copy.copy(self)
        apply, stages = now._applier(X), now._stages
        models = (now._poly_model(now._widen(stages[i])) for i in range(len(stages)))
        return (apply(method, model) for model in models)

    def _check_encoding(self, shards: Shards) -> None:
        """Raise unless the codes of shards mean what they meant in training."""
        if shards.joined is not None:
            in_columns(self, shards.joined)
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

    def predict(self, X: Any, out: str | os.PathLike[str] | None = None) -> NDArray:
        """Predict targets, in the form of the y of `fit`; for ordinal levels, the expected level.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), Joined or Shards
            Shards are predicted one at a time, by this process.
        out : str or path-like, optional
            A .npy file for the predictions, which are then mapped from the file.

        Returns
        -------
        ndarray, (n,) or (n, m)
        """
        return self._applier(X)(PolyModel.predict, out=out)

    @available_if(has_outputs)
    def decision_function(self, X: Any) -> Floats:
        """Outputs for X, as in `predict`; of a regressor only if the y of `fit` was 2-D.

        Returns
        -------
        ndarray
            (n, m), one column per class or label; for two classes the output of the second minus
            that of the first, (n,). Of a regressor `predict`, or its logarithm for rates. For
            ordered levels the log odds of y <= level, for all levels but the last.
        """
        return self._applier(X)(PolyModel.decision_function)

    @available_if(has_probabilities)
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the classes, labels or levels for X, as in `predict`.

        Returns
        -------
        ndarray, (n, len(classes_))
            Rows sum to 1. For multi-label y they do not: each entry is the probability of a label.
        """
        return self._applier(X)(PolyModel.predict_proba)

    @available_if(has_probabilities)
    def predict_log_proba(self, X: Any) -> Floats:
        """Logarithms of `predict_proba`, of the same X; -inf where a level has none."""
        return self._applier(X)(PolyModel.predict_log_proba)

    def score(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """The share of rows whose class, or all of whose labels, are predicted; otherwise R^2.

        R^2 is a mean over outputs. For ordered levels it is that of the expected level; levels that
        are not numbers count by their ranks among the declared ones. X, y and sample_weight are as
        in `fit`; Shards hold their own y and weights, but others can be given.
        """
        prediction, y = self.predict(X), check_csr(y)
        if y is None and isinstance(X, Shards):
            y, sample_weight = X.targets(), X.weights()
        return float(self._metric(y, prediction, sample_weight))

    def transform(self, X: Any) -> Floats:
        """The activations of the basis vectors: features of X that were learned, for another model.

        Returns
        -------
        ndarray, (n, n_components_)
            (h'x)^2 of a polynomial network, or the sum over i < j of h_i x_i h_j x_j of a
            factorization machine, for each basis vector h; `set_output` makes it a frame.
        """
        if isinstance(X, Joined):  # whose keys lack the pairs within a table
            check_is_fitted(self, "model_")
            X = validate(self, X, reset=False).plain()
        return self._applier(X)(PolyModel.activations)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def staged_predict(self, X: Any) -> Iterator[NDArray]:
        """Yield what `predict` would give for X after each entry of `history_`."""
        return self._by_stages(PolyModel.predict, X)

    def staged_decision_function(self, X: Any) -> Iterator[Floats]:
        """Yield the outputs of X after each entry of `history_`, (n,) or (n, m)."""
        return self._by_stages(PolyModel.decision_function, X)

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

    def _output_position(self, output: Any) -> Any:
        """The position or the name by which `PolyModel` knows an output."""
        kind = {"classification": "class", "ordinal": "level"}.get(self._task, "output")
        names, m = self.model_.output_names, self.model_.n_outputs
        labels = [] if kind == "output" else self.classes_[:m].tolist()
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

    def _keep_background(self, data: TrainingRows, columns: NDArray[np.intp] | None = None) -> None:
        """Keep what `contributions` must know of the training rows, unless it overflows.

        The vectors are 0 but in these columns.
        """
        sparse = not data.stored and hasattr(data.X, "indices")
        moments = None if sparse else data.statistics.features
        center = None if moments is None else moments.mean
        model, own = self.model_, center
        if columns is not None:
            H = model.H[:, model.augment :][:, columns]
            model = PolyModel(H, model.V, model.intercept, activation=model.activation)
            data = replace(data, X=data.X[:, columns])
            own = None if center is None else center[columns]
        with np.errstate(over="ignore", invalid="ignore"):
            sums = data.background_sums(model.H[:, model.augment :], own)
            if not all(np.isfinite(each).all() for each in sums):
                return
            model = model._with_sums(sums, own)
        if columns is not None:
            every = np.zeros((2 + model.n_outputs, self._width))
            every[0] = 0.0 if center is None else center
            every[:, columns] = model.background
            model = replace(self.model_, background=every)
        self._set_model(model)

    def _set_model(self, poly: PolyModel) -> None:
        """Set the model and the attributes that are its parts."""
        self._set(
            model_=poly, components_=poly.H, output_weights_=poly.V, intercept_=poly.intercept,
            linear_coef_=poly.linear, n_components_=poly.n_components,
        )  # fmt: skip

    def _set_fit(self, state: State, model: Model) -> None:
        """Set the attributes that describe a state; `model` is its model in the users' units."""
        self._set_model(self._poly_model(model))
        self._set(
            n_iter_=max(1, state.n_iter), objective_=state.objective, violation_=state.violation,
            alpha_=state.alpha, dual_gap_=None if self.tau is None else state.gap,
            alpha_linear_=None if model.linear is None else state.alpha_linear,
        )  # fmt: skip

    def _set(self, **attributes: Any) -> None:
        """Set attributes; those that are None are not there, not even from an earlier fit."""
        for name, value in attributes.items():
            vars(self).pop(name, None)
            if value is not None:
                setattr(self, name, value)

    def _poly_model(self, model: Model) -> PolyModel:
        names = None if self._encoding is not None else self._feature_names()
        return PolyModel(
            model.H, model.V, model.intercept, None if model.linear is None else model.linear.T,
            activation=self._activation, augment=model.H.shape[1] > self._width,
            feature_names=names, encoding=self._encoding, fields=self._fields,
            output_names=self._output_names(), task=self._task,
            classes=None if self._task == "multilabel" else getattr(self, "classes_", None),
            level_values=self._level_values(),
            log_odds=self._task in NUMBERS or has_log_odds(self.loss),
        )  # fmt: skip

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
