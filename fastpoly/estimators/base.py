"""The base class of the six estimators: their parameters and the fit."""

import copy
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from inspect import Parameter, Signature, signature
from itertools import starmap
from time import monotonic
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight

from fastpoly.algorithm import Options, train
from fastpoly.estimators.advice import Advice, poor_fit, progress, warn
from fastpoly.estimators.arriving import Arriving
from fastpoly.estimators.data import (
    TrainingRows,
    as_fields,
    plain_numbers,
    set_names,
    usable_names,
    validate,
    validate_targets,
)
from fastpoly.joined import Joined
from fastpoly.kernels.checks import as_array, as_count, as_flag, as_positive, as_weights, shown
from fastpoly.kernels.losses import complete_loss, get_loss
from fastpoly.model import PolyModel
from fastpoly.objective import Objective
from fastpoly.problem import Problem, check_choice, check_strength, named_loss
from fastpoly.rows import Shards, Tables
from fastpoly.rows.block import Targets, as_codes
from fastpoly.rows.design import FIT_LOWER
from fastpoly.rows.statistics import Scaling
from fastpoly.state import Floats, Model, State
from fastpoly.storage.checkpoint import CURE, FitRecord, fingerprint, read_record, write_record
from fastpoly.strengths import as_start, best_form, train_default
from fastpoly.tables import Encoding
from fastpoly.tables.frames import is_frame

Class = TypeVar("Class", bound=type)
Encoded = tuple[Floats | None, int, dict[str, Any]]

# What the numbers of a table may be made of, the simplest first: in codes, and as plain columns.
SHAPES = {
    "anova": (None, "plain", "hinges", "steps"),
    "squared": (None, "plain", "hinges"),
}

# What is said of the targets of each task, the kinds of losses that suit them, and one by its name.
SUITABLE_LOSSES = {
    "classification": ("is 1-D", ("label",), "logistic"),
    "multilabel": ("is a label indicator", ("sign", "real"), "logistic"),
    "regression": ("holds numbers", ("real", "sign"), "squared"),
    "rates": ("holds numbers", ("real", "sign"), "squared"),
    "ordinal": ("holds levels", ("sign",), "logistic"),
}


def with_parameters(**own: Any) -> Callable[[Class], Class]:
    """A class decorator: `__init__` takes the shared parameters, and more, or other defaults.

    scikit-learn reads its signature; a name that is not a parameter is an error that says so.
    """
    known = dict(signature(PolyEstimator.__init__).parameters)
    known |= {name: Parameter(name, Parameter.KEYWORD_ONLY, default=own[name]) for name in own}
    defaults = {name: parameter.default for name, parameter in [*known.items()][1:]}

    def __init__(self: Any, *unnamed: Any, **given: Any) -> None:
        user, names = type(self).__name__, ", ".join(defaults)
        if unnamed:
            raise TypeError(f"name the parameters of {user}: {user}(alpha={shown(unnamed[0])})")
        for name in given.keys() - defaults.keys():
            raise TypeError(f"{user} has no parameter {name!r}; known: {names}")
        vars(self).update(defaults | given)

    __init__.__signature__ = Signature([*known.values()])  # type: ignore[attr-defined]

    def write(cls: Class) -> Class:
        cls.__init__ = __init__  # type: ignore[misc]
        return cls

    return write


class PolyEstimator(Arriving):
    """Base of the estimators; subclasses define what targets mean and name the activation.

    `_split_targets(y)` returns the checked y, and its classes with their codes, or None and
    numbers. `_encode(classes, shape)` returns what every class is to the loss, the number of
    outputs, and the attributes that decode predictions.
    """

    _numeric_targets = False
    shapes_: str | None

    def __init__(
        self, *, alpha: float | None = None, tau: float | None = None, penalty: Any = "l1/l2",
        loss: Any = "logistic", n_components: int = 50, block: int | str = "auto",
        refit: str | None = "auto", fit_lower: str | None = "explicit",
        alpha_linear: float | None = None, standardize: bool = True, fields: Any = None,
        shapes: str | None = "auto", solver: str = "auto", max_iter: int = 1000, tol: float = 0.1,
        selection: Any = "refine", early_stopping: bool = False, validation_fraction: float = 0.25,
        n_iter_no_change: int = 10, warm_start: bool = False, n_threads: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None, checkpoint_every: float = 60.0,
        verbose: int = 0, random_state: Any = None,
    ) -> None:  # fmt: skip
        vars(self).update((name, value) for name, value in locals().items() if name != "self")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags

    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Fit the model.

        A fit that raises or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards
            `Shards` are rows in files, with their targets and weights.
        y : array-like, (n,) or (n, m)
            Targets. None with shards.
        sample_weight : array-like, (n,), optional
            Weights of the rows, >= 0; the loss is a weighted sum over the rows. None with shards.

        Returns
        -------
        self
        """
        fitted = copy.copy(self)
        advice = fitted._fit(X, y, sample_weight)
        self.__dict__ = fitted.__dict__  # in one step, for other threads and for Ctrl-C
        if advice is not None:
            warn(*advice)
        return self

    def _fit(
        self, X: Any, y: ArrayLike | None, sample_weight: ArrayLike | None,
        start: PolyModel | None = None, by_score: bool = False,
    ) -> Advice | None:  # fmt: skip
        """Fit the model, from the model `start` if there is one; return what is wrong with it.

        `by_score` says that n_components was chosen for its score.
        """
        self._check_parameters()
        earlier = self._earlier_fit()
        data = self._prepare(X, y, sample_weight, reset=earlier is None)
        fit = "" if self.checkpoint is None else self._fingerprint(data)
        record = self._record(earlier, fit)
        held = None
        if self.early_stopping:
            self._split_seed, share = record.seed, self.validation_fraction
            data, held = data.hold_out(share, record.seed, self._task)
        objective = self._begin(data)
        columns = self._columns = self._scaling.columns
        d = data.shape[1] if columns is None else len(columns)
        if record.stages and record.stages.n_features != d + (self.fit_lower == "augment"):
            raise ValueError(f"{self.checkpoint} has models of other features; {CURE}")
        begin = record.state or self._start(earlier, start, data.m)
        if begin is not None and begin.n_components > self.n_components:
            raise ValueError(
                f"the fit goes on from {begin.n_components} basis vectors, and n_components="
                f"{self.n_components} is less; it can only grow"
            )
        found = data.search if self._scaling.span is None else None  # of the same features
        if self.tau is None and self.alpha is None:
            states = train_default(objective, self._options(), self.alpha_linear, begin, found)
        else:
            states = train(objective, self._options(), begin)
        saved = monotonic()
        units = self._scaling if columns is None else self._scaling.of_columns()
        with progress(self, data) as show:
            try:
                while not record.ended(self.n_components, self.n_iter_no_change):
                    state = next(states)
                    model = units.fold(state.model, self._activation)
                    score = None if held is None else self._score_of(self._widen(model), held)
                    record = record.after(state, model, score)
                    show(state, score)
                    if fit and monotonic() - saved >= self.checkpoint_every:
                        write_record(self.checkpoint, fit, *record.parts())
                        saved = monotonic()
            finally:
                if fit and record.state is not None:
                    write_record(self.checkpoint, fit, *record.parts())
        rows = objective.rows if self._scaling.span is columns else None  # not those of a basis
        self._finish(record)
        self._keep_background(data, columns)
        own = None if columns is None else units.unfold(self._stages[-1], self._activation)
        self._remember(rows or self._objective(data).rows, own)
        return poor_fit(self, objective.small, by_score)

    def _record(self, earlier: Self | None, fit: str) -> FitRecord:
        """The record that a fit goes on with: of its checkpoint, or an empty one."""
        record = FitRecord(seed=getattr(earlier, "_split_seed", None) or self._seed())
        if not fit:
            return record
        path = os.path.abspath(self.checkpoint)
        if os.path.isdir(path) or not os.path.isdir(os.path.dirname(path)):
            raise ValueError(f"checkpoint must be a file in an existing folder, got {path}")
        with suppress(FileNotFoundError):
            record = read_record(self.checkpoint, fit, FitRecord.of)
        return record

    def _fingerprint(self, data: TrainingRows) -> str:
        """A digest of the data and of the parameters that matter."""
        texts = [type(self).__name__]
        free = {"checkpoint", "checkpoint_every", "n_components", "n_threads", "verbose"}
        parameters = self.get_params(deep=False)
        for name in sorted(parameters.keys() - free):
            value, text = parameters[name], repr(parameters[name])
            if " at 0x" in text:  # an object without a repr of its own shows its address
                try:
                    text = pickle.dumps(value, protocol=4)
                except Exception as error:
                    raise ValueError(
                        f"checkpoint needs a {name} that can be pickled, so that another one is "
                        f"not taken for it: {error}"
                    ) from None
            texts += [name, text]
        return fingerprint(*texts, getattr(self, "classes_", None), *data.identity())

    def _finish(self, record: FitRecord) -> None:
        """Keep the last model, or the one with the best validation score."""
        last, state = record.last, record.best or record.state
        self.history_ = record.stages.history()
        if record.scores:
            self.history_["validation_score"] = np.array(record.scores)
        # In columns, which may be far fewer than all, the state stays as it is.
        self._state = (
            state if self._columns is not None else change_state(state, self._scaling.widen)
        )
        self._scaling, self._stages = self._scaling._replace(span=None), record.stages.up_to(last)
        self._fitted_lower = self.fit_lower
        self._set_fit(state, self._widen(record.stages[last]))

    def _check_parameters(self) -> None:
        """Check the parameters that the functional core does not check."""
        check_strength(self.alpha, self.tau)
        check_choice(self.fit_lower, "fit_lower", FIT_LOWER)
        check_choice(self.shapes, "shapes", ("auto", *SHAPES[self._activation]))
        as_count(self.n_iter_no_change, "n_iter_no_change")
        if not isinstance(self.verbose, bool):
            as_count(self.verbose, "verbose", or_zero=True)
        as_positive(self.checkpoint_every, "checkpoint_every", or_zero=True)
        share = as_positive(self.validation_fraction, "validation_fraction")
        if share >= 1:
            raise ValueError(f"validation_fraction must be between 0 and 1, got {share}")
        for name in ("early_stopping", "warm_start", "standardize"):
            as_flag(getattr(self, name), name)
        if not isinstance(self.checkpoint, (str, os.PathLike, type(None))):
            raise TypeError(f"checkpoint must be the path of a file, got {shown(self.checkpoint)}")
        if self.checkpoint is not None and self.warm_start:
            raise ValueError(
                "checkpoint and warm_start=True exclude each other: a fit goes on from one of them"
            )

    def _earlier_fit(self) -> Self | None:
        """The estimator of the earlier fit, if this is a warm start."""
        if not self.warm_start or not hasattr(self, "_state"):
            return None
        if self.fit_lower != self._fitted_lower:
            raise ValueError(
                f"fit_lower was {self._fitted_lower!r} in the earlier fit and cannot change with "
                "warm_start=True"
            )
        return copy.copy(self)

    def _start(self, earlier: Self | None, poly: PolyModel | None, m: int) -> State | None:
        """The state to begin with: of the same problem and rows, or of a model to be refitted."""
        if earlier is not None:
            state = change_state(earlier._state, earlier._widen)
            if self.alpha is None and self.tau is None:
                state = replace(state, alpha=None)  # it is chosen anew
            if all(map(np.array_equal, earlier._scaling, self._scaling._replace(span=None))):
                return change_state(state, self._scaling.narrow)
            model = earlier._scaling.fold(state.model, self._activation)
        elif poly is None or (poly.n_features, poly.n_outputs) != (self._width, m):
            return None  # a fold may lack a class, or a transformer may give other features
        else:
            model = poly.parameters()
        return as_start(self._scaling.unfold(model, self._activation), self._seed())

    def _prepare(
        self, X: Any, y: ArrayLike | None, sample_weight: ArrayLike | None, reset: bool = True
    ) -> TrainingRows:
        """Checked rows, in memory or in shards, with targets in the form of the loss."""
        names, values = usable_names(getattr(y, "columns", ())), None  # before y is an array
        if reset:
            self._encoding = self._fields = self._column_names = None
            vars(self).pop("shapes_", None)
        if self.fields is not None and (isinstance(X, Shards) or is_frame(X)):
            raise ValueError("fields must be None: frames and shards have their own")
        if isinstance(X, Shards):
            X = self._open(X, y, sample_weight, reset)
            classes, m = X.classes, X.manifest.n_targets
            shape = (X.n_samples,) if classes is not None or m == 1 else (X.n_samples, m)
        else:
            X, given = validate(self, X, reset), X
            if isinstance(given, Joined) and X.n_features < given.n_features:
                raise ValueError(
                    "the tables of X have keys that the earlier fit did not have: fold_in gives "
                    "them vectors, and warm_start=False fits anew"
                )
            y, classes, values = validate_targets(self, X, y)
            shape = y.shape
        table, m, decoding = self._encode(classes, shape)
        if not reset:
            self._check_same_kind(decoding)
        vars(self).update(decoding, _target_names=names)
        if values is not None and table is not None:
            values = as_codes(values, len(table))
        w = self._weights(X, y, sample_weight)
        data = TrainingRows(X, y, Targets(values, table), m, w, self.n_threads)
        if isinstance(X, dict) or (data.stored and self._encoding is not None):
            return self._table_rows(data, reset)
        if (joined := data.joined) is not None:
            self._fields, self._column_names = joined.exclusive_fields, joined.feature_names
            return data
        return data if data.stored else self._matrix_rows(data)

    def _table_rows(self, data: TrainingRows, reset: bool) -> TrainingRows:
        """The columns of a table as codes with tables, or plain, in the best of the `shapes`."""
        columns, known, codes = data.X, self._encoding, data.X
        coded, X = data.stored or self._activation == "anova", None
        self._fields = None
        if not data.stored:
            X = plain_numbers(columns) if reset or known is None else None
            if X is not None and (self.shapes in (None, "plain") or not reset):
                return self._matrix_rows(replace(data, X=X))
            if reset:
                known, codes = Encoding.learn(columns)
            else:
                codes = known.codes(columns) if coded else None

        def form(shape: str | None) -> tuple[Encoding | None, str | None, TrainingRows]:
            """An encoding, the shape of its numbers, and the rows in that form."""
            if shape is None and X is not None:
                return None, None, self._matrix_rows(replace(data, X=X))
            if coded and shape != "plain":
                tables = Tables(known.tables(shape)).orthogonal(known.frequencies)
                return known, shape, data.with_tables(codes, tables)
            encoding = known.as_form(shape or "matrix")
            rows = replace(data, X=encoding.rows(columns), fields=encoding.unit_fields)
            return encoding, shape, rows

        shapes = (self.shapes if reset else self.shapes_,)
        if shapes == ("auto",):
            few = not data.stored and len(data.targets.values) < 50  # too few rows to tell
            bends = not few and any(field.kind == "number" for field in known.fields)
            shapes = SHAPES[self._activation] if bends else (None,)
            if data.stored or X is not None or not known.is_narrow(len(data.targets.values)):
                shapes = tuple(shape for shape in shapes if shape != "plain")
        elif shapes == ("plain",) and data.stored:
            raise ValueError("shapes must not be 'plain': shards hold the bins of numbers")
        forms, at, found = list(map(form, shapes)), 0, None
        if len(forms) > 1:

            def objective(encoding: Encoding | None, _: Any, rows: TrainingRows) -> Objective:
                self._encoding = encoding
                self._scaling = self._units(rows)
                return self._objective(rows)

            each = starmap(objective, forms)
            at, found = best_form(each, self._options(), self.alpha_linear)
        self._encoding, self.shapes_, rows = forms[at]
        return replace(rows, search=found)

    def _matrix_rows(self, data: TrainingRows) -> TrainingRows:
        """Plain rows with the fields of their columns."""
        fields = as_fields(self.fields, data.X.shape[1])
        data, self._fields = data.in_fields(fields, self._activation)
        return data

    def _open(self, shards: Shards, y: Any, sample_weight: Any, reset: bool) -> Shards:
        """Check shards for a fit; they hold targets and weights, and have the names of features."""
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ValueError(f"{name} must be None: shards hold their own, see write_shards")
        shards.check_unchanged()
        if not reset:
            self._check_encoding(shards)
            self.model_.check_width(shards.n_features)
            return shards
        self._encoding = shards.encoding
        names = None if self._encoding is None else self._encoding.names
        set_names(self, shards.n_features if names is None else len(names), names)
        return shards

    def _check_same_kind(self, decoding: dict[str, Any]) -> None:
        """Raise unless predictions are decoded as in the earlier fit, for a warm start."""
        for name, now in decoding.items():
            if not np.array_equal(now, getattr(self, name)):
                what = "classes or levels" if name == "classes_" else "shape or kind"
                raise ValueError(
                    "warm_start=True needs the same kind of y as the earlier fit, and its "
                    f"{what} changed; set warm_start=False to start from scratch"
                )

    def _weights(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Floats | None:
        """Weights of the rows, or, with shards, of the classes; None where all are 1."""
        if sample_weight is None:
            return None
        w = _check_sample_weight(as_array(sample_weight, "sample_weight"), y, dtype=np.float64)
        return as_weights(w, "sample_weight", len(w), some=True)

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _units(self, data: TrainingRows) -> Scaling:
        """The units in which the model is trained."""
        names = self._feature_names()
        return data.units(self.standardize, self.fit_lower == "explicit", names)

    def _begin(self, data: TrainingRows) -> Objective:
        """What is minimized on these rows, in units that fit them, and in their span."""
        self._scaling = data.within_span(self._units(data), self._activation)
        return self._objective(data)

    def _model_loss(self) -> Any:
        """The complete loss: the form of a name that suits y, or an object."""
        targets, kinds, name = SUITABLE_LOSSES[self._task]
        if isinstance(self.loss, str):
            return complete_loss(get_loss(named_loss(self.loss, kinds[0])))
        if getattr(self.loss, "target", kinds[0]) not in kinds:
            form = {"label": "multi-class", "sign": "binary", "real": "real-valued"}[kinds[0]]
            raise ValueError(
                f"loss {type(self.loss).__name__} does not suit y, which {targets} and needs a "
                f"{form} loss; a name, such as loss={name!r}, stands for it"
            )
        return get_loss(self.loss)

    def _objective(self, data: TrainingRows) -> Objective:
        """What is minimized on these rows; alpha is 1 where it is to be chosen."""
        rows = data.rows(self._scaling, self._model_loss(), self._activation, self.fit_lower)
        problem = Problem.of(
            rows.loss, self.penalty, rows.m, alpha=self.alpha, tau=self.tau,
            alpha_linear=1.0 if self.alpha_linear is None else self.alpha_linear,
        )  # fmt: skip
        return Objective(problem, rows)

    def _options(self, finish: bool = True) -> Options:
        """How to train."""
        return Options(
            self.n_components, self.block, self.refit, self.solver, self.max_iter, self.tol,
            self.selection, finish=finish, seed=self._seed(),
        )  # fmt: skip

    def _score_of(self, model: Model, held: TrainingRows) -> float:
        """The `score` of a model that is still being trained."""
        view = copy.copy(self)
        view._encoding = None  # the rows held out are features
        set_names(view, self._width)
        view._set_model(view._poly_model(model))
        score = view.score(held.X, held.y, held.w)
        if np.isnan(score):
            raise ValueError(
                "early_stopping cannot score the rows held out; enlarge validation_fraction, "
                f"which is {self.validation_fraction}"
            )
        return score


def change_state(state: State, change: Callable[[Model], Model]) -> State:
    """The state with model and eigenvectors in other coordinates."""
    vectors = state.memory.vectors
    if vectors is not None:
        vectors = change(state.model._replace(H=vectors)).H
    memory = state.memory._replace(vectors=vectors)
    return replace(state, **change(state.model)._asdict(), memory=memory)
