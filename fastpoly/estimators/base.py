"""The base class of the six estimators: their parameters and the training loop."""

import copy
import numbers
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from fastpoly.advice import Complaint, poor_fit, warn, why_slow
from fastpoly.algorithm import conditional_gradient
from fastpoly.estimators.callbacks import (
    Checkpoint,
    EarlyStopping,
    History,
    Progress,
    SlowFit,
)
from fastpoly.estimators.data import (
    ShardData,
    TrainingData,
    checked_csr,
    column_names,
    explained_text,
)
from fastpoly.estimators.prediction import Predictor
from fastpoly.kernels.checks import as_count, as_flag, as_positive, as_weights
from fastpoly.model import PolyModel
from fastpoly.noise import fit_above_noise
from fastpoly.path import alpha_max, gained_little
from fastpoly.problem import Problem, check_choice, check_strength
from fastpoly.rows.contract import Rows
from fastpoly.rows.design import FIT_LOWER, check_largest
from fastpoly.rows.scaling import Scaling
from fastpoly.rows.shards import Shards
from fastpoly.state import Model, State
from fastpoly.storage.continuation import (
    check_same_kind,
    fit_fingerprint,
    problem_key,
)
from fastpoly.storage.stages import Stages

Floats = NDArray[np.float64]
Data = TrainingData | ShardData


def warn_of(complaint: Complaint | None) -> None:
    """Give a warning of a poor fit, if there is one."""
    if complaint is not None:
        warn(complaint.message, UserWarning if complaint.converged else ConvergenceWarning)


class PolyEstimator(Predictor):
    """Base of the estimators; subclasses define what targets mean and name the activation.

    A subclass defines `_model_loss` and `_encode_targets(y)`, which returns the checked y, the
    targets of the loss, the number of outputs, and the attributes that decode predictions.
    """

    def __init__(
        self,
        *,
        alpha: float | None = None,
        tau: float | None = None,
        penalty: Any = "l1/l2",
        loss: Any = "logistic",
        n_components: int = 50,
        block: int | str = "auto",
        refit: str | None = "auto",
        fit_lower: str | None = "explicit",
        alpha_linear: float = 1.0,
        standardize: bool = True,
        solver: str = "auto",
        max_iter: int = 1000,
        tol: float = 0.1,
        selection: str = "refine",
        early_stopping: bool = False,
        validation_fraction: float = 0.25,
        n_iter_no_change: int = 10,
        warm_start: bool = False,
        n_threads: int | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: float = 60.0,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        self.alpha = alpha
        self.tau = tau
        self.penalty = penalty
        self.loss = loss
        self.n_components = n_components
        self.block = block
        self.refit = refit
        self.fit_lower = fit_lower
        self.alpha_linear = alpha_linear
        self.standardize = standardize
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.selection = selection
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.warm_start = warm_start
        self.n_threads = n_threads
        self.checkpoint = checkpoint
        self.checkpoint_every = checkpoint_every
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
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
        complaint = fitted._fit(X, y, sample_weight)
        self.__dict__ = fitted.__dict__  # in one step, for other threads and for Ctrl-C
        warn_of(complaint())
        return self

    def _fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None,
        start: PolyModel | None = None, by_score: bool = False,
    ) -> Callable[[], Complaint | None]:  # fmt: skip
        """Fit the model, from the model `start` if there is one.

        `by_score` says that n_components was chosen for its score. Returns a function that tells
        what is wrong with the model.
        """
        self._check_parameters()
        earlier = self._earlier_fit()
        data = self._prepare(X, y, sample_weight, reset=earlier is None)
        if earlier is not None and data.digest() != earlier._fitted_rows:
            warn(
                "warm_start=True sees other rows than the earlier fit: its model is the start of "
                "a new fit to these rows only; set warm_start=False to start from scratch"
            )
            self._fitted_problem = None
        self._fitted_rows = data.digest() if self.warm_start else None
        history, early = self._callbacks(earlier)
        callbacks = [history] if early is None else [history, early]
        with ExitStack() as stack:
            if self.checkpoint is not None:
                checkpoint = Checkpoint(
                    self.checkpoint, self.checkpoint_every, fit_fingerprint(self, data), callbacks
                )
                checkpoint.load()
            held = None
            if early is not None:
                self._split_seed = early.split_seed
                data, held = self._hold_out(data)
            data = data.merged()
            self._scaling = scaling = self._units(data)
            history.fold = lambda model: scaling.fold(model, self._activation)
            if early is not None:
                early.score = lambda model: self._score_of(model, held)
            if self.checkpoint is not None:
                callbacks = [*callbacks, stack.enter_context(checkpoint)]
            progress = stack.enter_context(Progress(self.verbose, self.n_components, early))
            slow = SlowFit(lambda state, first: why_slow(self, data, state, first))
            callbacks = [*callbacks, progress, slow]
            begin = history.state or self._start(earlier, start, data.m)
            rows = self._rows(data)
            states = self._states(data, rows, self.alpha, begin, watch=slow.check)
            done = history.ended() or (early is not None and early.ended())
            while not done:
                state = next(states)
                done = any([callback.after(state) for callback in callbacks])
        self._finish(history, early)
        return lambda: poor_fit(self, lambda: self._problem(data, rows).small, by_score)

    def _callbacks(self, earlier: Self | None) -> tuple[History, EarlyStopping | None]:
        """History and early stopping; they continue an earlier fit of the same problem."""
        goes_on = earlier is not None and self._fitted_problem == problem_key(self)
        d = self.n_features_in_ + (self.fit_lower == "augment")
        stages = earlier._stages.up_to(len(earlier._stages)) if goes_on else Stages(d)
        history = History(stages, self.n_components)
        if not self.early_stopping:
            return history, None
        # A warm start must hold out the same rows.
        seed = self._seed() if earlier is None else getattr(earlier, "_split_seed", self._seed())
        early = EarlyStopping(history, self.n_iter_no_change, seed)
        if goes_on:
            early.scores, early.best = list(earlier._validation_scores), earlier._state
        return history, early

    def _finish(self, history: History, early: EarlyStopping | None) -> None:
        """Keep the last model, or the one with the best validation score."""
        kept, last = history.state, len(history.stages) - 1
        self.history_ = history.stages.history()
        if early is not None:
            kept, last = early.best, early.best_stage
            self.history_["validation_score"] = np.array(early.scores)
            self._validation_scores = early.scores[: last + 1]
        self._state, self._stages = kept, history.stages.up_to(last)
        self._fitted_lower, self._fitted_problem = self.fit_lower, problem_key(self)
        self._set_fit(kept, self._stages[last])

    def _set_fit(self, state: State, model: Model) -> None:
        """Set the attributes that describe a state; `model` is its model in the users' units."""
        self._set_model(model)
        self.n_iter_ = max(1, state.n_iter)
        self.objective_ = state.objective
        self.violation_ = state.violation
        for name in ("alpha_", "dual_gap_"):  # left from an earlier fit with other parameters
            vars(self).pop(name, None)
        if self.tau is None:
            self.alpha_ = state.alpha
        else:
            self.dual_gap_ = state.gap

    def _check_parameters(self) -> None:
        """Check the parameters that the functional core does not check."""
        check_strength(self.alpha, self.tau)
        check_choice(self.fit_lower, "fit_lower", FIT_LOWER)
        as_count(self.n_components, "n_components")
        as_count(self.n_iter_no_change, "n_iter_no_change")
        if not as_positive(self.validation_fraction, "validation_fraction") < 1:
            raise ValueError(
                f"validation_fraction must be between 0 and 1, got {self.validation_fraction}"
            )
        for name in ("early_stopping", "warm_start", "standardize"):
            as_flag(getattr(self, name), name)
        if self.checkpoint is not None:
            if not isinstance(self.checkpoint, (str, os.PathLike)):
                raise TypeError(f"checkpoint must be the path of a file, got {self.checkpoint!r}")
            if self.warm_start:
                raise ValueError(
                    "checkpoint and warm_start=True exclude each other: a fit continues from one "
                    "of them"
                )
        as_positive(self.checkpoint_every, "checkpoint_every", or_zero=True)
        if not isinstance(self.verbose, numbers.Integral) or self.verbose < 0:
            raise ValueError(f"verbose must be an int >= 0, got {self.verbose!r}")

    def _earlier_fit(self) -> Self | None:
        """The estimator of the earlier fit, if this is a warm start."""
        if not self.warm_start or not hasattr(self, "_state"):
            return None
        if self.n_components < self._state.n_components:
            raise ValueError(
                f"n_components={self.n_components} is less than the {self._state.n_components} "
                "basis vectors that are fitted; with warm_start=True it can only grow"
            )
        if self.fit_lower != self._fitted_lower:
            raise ValueError(
                f"fit_lower was {self._fitted_lower!r} in the earlier fit and cannot change with "
                "warm_start=True"
            )
        return copy.copy(self)

    def _start(self, earlier: Self | None, poly: PolyModel | None, m: int) -> State | None:
        """The state to begin with, in the units of this fit."""
        if earlier is not None:
            state, units = earlier._state, earlier._scaling
            if self._fitted_problem != problem_key(self):
                state = replace(state, alpha=None, tau=None)  # another problem, or other rows
            if all(map(np.array_equal, units, self._scaling)):
                return state
            model = units.fold(state.model, self._activation)
        elif poly is None or (poly.n_features, poly.n_outputs) != (self.n_features_in_, m):
            return None  # a fold may lack a class, or a transformer may give other features
        else:
            model = poly.parameters()
            state = State(*model, objective=0.0, loss=0.0, penalty=0.0, seed=self._seed())
        model = self._scaling.unfold(model, self._activation)
        return replace(state, **model._asdict(), alpha=None, tau=None, vectors=None)

    def _prepare(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool = True
    ) -> Data:
        """Checked rows, with targets in the form of the loss."""
        if isinstance(X, Shards):
            return self._prepare_shards(X, y, sample_weight, reset)
        if reset:
            self._stored_names = None
        names = column_names(y)  # before y becomes an array
        with explained_text(X):
            X, y = validate_data(
                self, checked_csr(X), checked_csr(y), accept_sparse="csr",
                dtype=[np.float64, np.float32], multi_output=True,
                y_numeric=self._numeric_targets(), reset=reset,
            )  # fmt: skip
        y, targets, m, decoding = self._encode_targets(y)
        if not reset:
            check_same_kind(self, decoding)
        vars(self).update(decoding, _target_names=names)
        return TrainingData(X, y, targets, m, self._weights(X, y, sample_weight))

    def _prepare_shards(self, shards: Shards, y: Any, sample_weight: Any, reset: bool) -> ShardData:
        """As `_prepare`, for rows in files, which also hold targets and weights."""
        for name, value in (("y", y), ("sample_weight", sample_weight)):
            if value is not None:
                raise ValueError(f"{name} must be None: shards hold their own, see write_shards")
        data = ShardData(shards, self.n_threads)
        data.targets, data.m, decoding, data.w = self._encode_shards(data)
        if reset:
            self.n_features_in_ = shards.n_features
            self._stored_names = shards.feature_names
            vars(self).pop("feature_names_in_", None)
        else:
            check_same_kind(self, decoding)
            self.model_.check_width(shards.n_features)
        vars(self).update(decoding, _target_names=None)
        return data

    def _numeric_targets(self) -> bool:
        return False

    def _weights(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Floats | None:
        if sample_weight is None:
            return None
        w = _check_sample_weight(sample_weight, X, dtype=np.float64)
        return as_weights(w, "sample_weight", len(w), some=True)

    def _hold_out(self, data: Data) -> tuple[Data, Data]:
        """Rows to train on and rows to validate with, by class where there are classes."""
        share = self.validation_fraction
        strata = None if data.y is None else self._strata(data.y, share)
        return data.hold_out(share, self._split_seed, strata)

    def _strata(self, y: Any, share: float) -> Any:
        """The group of every row, (n,), or None; a share of each group is held out."""
        return None

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _units(self, data: Data) -> Scaling:
        """The units in which the model is trained."""
        found = data.statistics
        check_largest(found.largest)
        if not self.standardize:
            return Scaling.none(found)
        scaling = Scaling.standard(found, self.fit_lower == "explicit")
        for j in scaling.mostly_mean(0.95):
            raise ValueError(
                f"the mean of column {self._column(j)} of X is so much larger than its deviation "
                "that predictions would have no digits left; subtract a constant from it"
            )
        for j in found.below_rounding()[:1]:
            warn(
                f"column {self._column(j)} of X varies by no more than the rounding of its "
                "entries, and is ignored; subtract a constant from it, or rescale it"
            )
        columns = scaling.mostly_mean(2 / 3)
        offset = found.offset_columns() if scaling.center is None else ()
        if len(columns):
            warn(
                f"the mean of column {self._column(columns[0])} of X is more than 1e5 times its "
                "deviation, which costs digits in predictions; subtract a constant from it"
            )
        if len(offset):
            why = "sparse X is" if self.fit_lower == "explicit" else "without explicit terms X is"
            warn(
                f"column {self._column(offset[0])} of X is never 0 and far from it, and {why} not "
                'centered; subtract a constant from it, or use dense X and fit_lower="explicit"'
            )
        return self._target_units(scaling, data)

    def _column(self, j: int) -> str:
        """The name of a column of X for users."""
        names = self._feature_names()
        return str(j) if names is None else repr(names[j])

    def _target_units(self, scaling: Scaling, data: Data) -> Scaling:
        return scaling

    def _rows(self, data: Data) -> Rows:
        """The rows in the form of the core."""
        return data.design(self._scaling, self._activation, self.fit_lower, self.n_threads)

    def _states(
        self, data: Data, rows: Rows, alpha: float | None, start: State | None, **options: Any
    ) -> Iterator[State]:
        """The states of Algorithm 1 on these rows; options are those of `conditional_gradient`."""
        run, strength = fit_above_noise, {}
        if self.tau is not None:
            run, strength = conditional_gradient, {"tau": self.tau}
        elif alpha is not None:
            run, strength = conditional_gradient, {"alpha": alpha}
        return run(
            rows, data.scaled_targets(self._scaling),
            loss=self._model_loss(), penalty=self.penalty, **strength,
            n_components=self.n_components, block=self.block, refit=self.refit,
            alpha_linear=self.alpha_linear,
            solver=self.solver, max_iter=self.max_iter, tol=self.tol, selection=self.selection,
            sample_weight=data.w, n_outputs=data.m, start=start, random_state=self._seed(),
            **options,
        )  # fmt: skip

    def _path(
        self, X: Any, y: Any, sample_weight: Any, alphas: Floats
    ) -> Iterator[tuple[int, State, Self]]:
        """States for decreasing alphas, each run from the model of the one before.

        A run ends early where rounds gain little, and is not finished. Yields the position of the
        alpha, a state, and the estimator fitted at that state.
        """
        data = self._prepare(X, y, sample_weight).merged()
        self._scaling = self._units(data)
        rows, state = self._rows(data), None
        slow = SlowFit(lambda state, first: why_slow(self, data, state, first))
        for i, alpha in enumerate(alphas):
            slow.restart()
            run = self._states(data, rows, float(alpha), state, finish=False, watch=slow.check)
            for state in run:
                if not state.stop and gained_little(state, self.tol):
                    state = replace(state, stop="no progress")
                here = copy.copy(self)
                here._set_fit(state, self._scaling.fold(state.model, self._activation))
                slow.after(state)
                yield i, state, here
                if state.stop:
                    break

    def _problem(self, data: Data, rows: Rows) -> Problem:
        """The problem, with any alpha."""
        return rows.problem(
            data.scaled_targets(self._scaling), loss=self._model_loss(), penalty=self.penalty,
            alpha_linear=self.alpha_linear, sample_weight=data.w, n_outputs=data.m,
        )  # fmt: skip

    def _alpha_max(self, X: Any, y: Any, sample_weight: Any) -> float:
        """The smallest alpha for which the model without basis vectors is optimal."""
        data = self._prepare(X, y, sample_weight).merged()
        self._scaling = self._units(data)
        return alpha_max(
            self._rows(data), data.scaled_targets(self._scaling), loss=self._model_loss(),
            penalty=self.penalty, alpha_linear=self.alpha_linear, sample_weight=data.w,
            n_outputs=data.m, tol=self.tol,
        )  # fmt: skip

    def _score_of(self, model: Model, held: Data) -> float:
        """The `score` of a model that is still being trained."""
        view = self._with_model(model)
        vars(view).pop("feature_names_in_", None)  # the rows held out are a plain array
        score = held.score(view)
        if np.isnan(score):
            raise ValueError(
                "early_stopping cannot score the rows held out; enlarge validation_fraction, "
                f"which is {self.validation_fraction}"
            )
        return score
