"""What the six estimators share: parameters, the training loop, stages, interactions."""

import copy
import numbers
import os
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from fastpoly.algorithm import conditional_gradient
from fastpoly.estimators.prediction import Predictor
from fastpoly.estimators.progress import Progress
from fastpoly.estimators.rows import (
    column_names,
    forget_unseen,
    merge_rows,
    safe_rows,
    unseen_features,
)
from fastpoly.estimators.stages import Stages
from fastpoly.estimators.training import Checkpoint, NoCheckpoint, Training, problem_of
from fastpoly.estimators.warm import check_same_kind, warm_problem
from fastpoly.kernels.checks import as_count, as_positive, as_weights
from fastpoly.path import alpha_max
from fastpoly.refit.rounds import LOOSEST_REFIT_TOL
from fastpoly.rows.design import Design
from fastpoly.state import State

Floats = NDArray[np.float64]


class PolyEstimator(Predictor):
    """Base of the estimators: the subclasses say what targets mean and name the activation.

    A subclass gives `_encode_targets(y)`, which returns y checked, the targets of the loss, the
    number of outputs, and the attributes that decode predictions; and `_model_loss`.
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        tau: float | None = None,
        penalty: Any = "l1/l2",
        loss: Any = "logistic",
        n_components: int = 50,
        block: int | str = "auto",
        refit: str | None = "auto",
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

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the model.

        A fit that raises or is interrupted leaves the estimator as it was.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)
        y : array-like, (n,) or (n, m)
        sample_weight : array-like, (n,), optional
            Weights of the rows, >= 0; the loss is their weighted sum.

        Returns
        -------
        self
        """
        fitted = copy.copy(self)
        fitted._fit(X, y, sample_weight)
        self.__dict__ = fitted.__dict__  # in one step, for other threads and for Ctrl-C
        self._warn_unless_converged()
        return self

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        self._check_parameters()
        start = self._start()
        X, y, targets, m, w = self._prepare(X, y, sample_weight, reset=start is None)
        file = self._checkpoint(X, targets, w)
        saved = file.load(self.n_components)
        held = None
        if self.early_stopping:
            if saved is not None:
                self._split_seed = file.split_seed
            elif start is None or not hasattr(self, "_split_seed"):
                self._split_seed = self._seed()  # a warm start must hold out the same rows
            file.split_seed = self._split_seed
            train, test = self._hold_out(y)
            held = X[test], y[test], None if w is None else w[test]
            X, targets, w = X[train], targets[train], None if w is None else w[train]
        X, targets, w = merge_rows(X, targets, w)
        training = saved or self._training(start, held, X.shape[1])
        self._train(X, targets, m, w, held, training, start, file)

    def _check_parameters(self) -> None:
        """Parameters that the functional core does not check."""
        as_count(self.n_components, "n_components")
        as_count(self.n_iter_no_change, "n_iter_no_change")
        if not as_positive(self.validation_fraction, "validation_fraction") < 1:
            raise ValueError(
                f"validation_fraction must be between 0 and 1, got {self.validation_fraction}"
            )
        for name in ("early_stopping", "warm_start"):
            if not isinstance(getattr(self, name), (bool, np.bool_)):
                raise TypeError(f"{name} must be True or False, got {getattr(self, name)!r}")
        if self.checkpoint is not None and self.warm_start:
            raise ValueError(
                "checkpoint and warm_start=True exclude each other: a fit goes on from one of them"
            )
        as_positive(self.checkpoint_every, "checkpoint_every", or_zero=True)
        if self.alpha is None and self.tau is None:
            raise ValueError("alpha must be a number >= 0 unless tau is given, got None for both")
        if not isinstance(self.verbose, numbers.Integral) or self.verbose < 0:
            raise ValueError(f"verbose must be an int >= 0, got {self.verbose!r}")

    def _start(self) -> State | None:
        """Where a warm start begins, if this is one."""
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
        return self._state

    def _prepare(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool = True
    ) -> tuple[Any, Any, NDArray, int, Floats | None]:
        """Checked X and y, the targets of the loss, the number of outputs, weights."""
        names = column_names(y)  # before y becomes an array
        X, y = validate_data(
            self, safe_rows(X), safe_rows(y), accept_sparse="csr", dtype=[np.float64, np.float32],
            multi_output=True, y_numeric=self._numeric_targets(), reset=reset,
        )  # fmt: skip
        y, targets, m, decoding = self._encode_targets(y)
        if not reset:
            check_same_kind(self, decoding)
        vars(self).update(decoding, _target_names=names)
        return X, y, targets, m, self._weights(X, y, sample_weight)

    def _numeric_targets(self) -> bool:
        return False

    def _weights(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Floats | None:
        if sample_weight is None:
            return None
        w = _check_sample_weight(sample_weight, X, dtype=np.float64)
        return as_weights(w, "sample_weight", len(w))

    def _hold_out(self, y: Any) -> list[NDArray[np.intp]]:
        """Rows to train on and rows to validate with, by class where there are classes."""
        return train_test_split(
            np.arange(len(y)), test_size=self.validation_fraction, random_state=self._split_seed,
            stratify=self._strata(y, self.validation_fraction),
        )  # fmt: skip

    def _strata(self, y: Any, share: float) -> Any:
        """The groups of rows, (n,), of which `share` of each is to be held out, or None."""
        return None

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _design(self, X: Any) -> Design:
        n_threads = self._threads(X)
        return Design(X, self._activation, fit_lower=self.fit_lower, n_threads=n_threads)

    def _alpha_max(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None) -> float:
        """The smallest alpha for which the model without basis vectors is optimal."""
        X, _, targets, m, w = self._prepare(X, y, sample_weight)
        return alpha_max(
            self._design(X), targets, loss=self._model_loss(), penalty=self.penalty,
            alpha_linear=self.alpha_linear, sample_weight=w, n_outputs=m,
        )  # fmt: skip

    def _checkpoint(self, X: Any, targets: NDArray, w: Floats | None) -> Checkpoint | NoCheckpoint:
        if self.checkpoint is None:
            return NoCheckpoint()
        if not isinstance(self.checkpoint, (str, os.PathLike)):
            raise TypeError(f"checkpoint must be the path of a file, got {self.checkpoint!r}")
        return Checkpoint(self.checkpoint, self.checkpoint_every, problem_of(self, X, targets, w))

    def _training(self, start: State | None, held: Any, d: int) -> Training:
        """The run before its first step."""
        goes_on = start is not None and warm_problem(self) == self._fitted_problem
        stages = (
            self._stages.up_to(len(self._stages))
            if goes_on
            else Stages(d + (self.fit_lower == "augment"))
        )
        # A model of another problem is no candidate: it is where the run begins, refitted.
        best, n, score = start if goes_on else None, len(stages), -np.inf
        if best is not None and held is not None:
            score = self._score_of(best, held)
        return Training(None, stages, n, best, score, n - 1)

    def _train(
        self, X: Any, targets: NDArray, m: int, w: Floats | None, held: Any, training: Training,
        start: State | None, file: Checkpoint | NoCheckpoint,
    ) -> None:  # fmt: skip
        states = conditional_gradient(
            self._design(X), targets,
            loss=self._model_loss(), penalty=self.penalty,
            alpha=self.alpha if self.tau is None else None, tau=self.tau,
            n_components=self.n_components, block=self.block, refit=self.refit,
            alpha_linear=self.alpha_linear,
            solver=self.solver, max_iter=self.max_iter, tol=self.tol, selection=self.selection,
            sample_weight=w, n_outputs=m, start=training.state or start,
            random_state=self._seed(),
        )  # fmt: skip
        unseen = unseen_features(X)
        with Progress(self.verbose, self.n_components) as progress, file:
            while not training.ended(self.n_components, self.n_iter_no_change):
                state = next(states)
                shown = forget_unseen(state, unseen)
                score = None if held is None else self._score_of(shown, held)
                training = training.step(state, shown, score)
                file.save(training)
                progress.show(shown, score)
        self.history_ = training.stages.history(with_scores=held is not None)
        self._stages = training.stages.up_to(training.last)
        self._fitted_lower, self._fitted_problem = self.fit_lower, warm_problem(self)
        self._remember(training.best)

    def _score_of(self, state: State, held: tuple[Any, Any, Floats | None]) -> float:
        """What `score` will say of a model that is still being trained."""
        view = self._view(self._as_model(state.H, state.V, state.intercept, state.linear))
        vars(view).pop("feature_names_in_", None)  # the rows held out are a plain array
        score = view.score(*held)
        if np.isnan(score):
            raise ValueError(
                f"early_stopping cannot score the {len(held[1])} rows held out; enlarge "
                f"validation_fraction, which is {self.validation_fraction}"
            )
        return score

    def _remember(self, best: State) -> None:
        self._state = best
        self._show(self._as_model(best.H, best.V, best.intercept, best.linear))
        self.n_iter_ = max(1, best.n_iter)
        self.objective_ = best.objective
        self.violation_ = best.violation
        vars(self).pop("dual_gap_", None)  # of an earlier fit with other parameters
        if self.tau is not None:
            self.dual_gap_ = best.gap

    def _warn_unless_converged(self) -> None:
        """Tell of a model that is worse than its parameters promise, and of what to change."""
        state, objective = self._state, abs(self.objective_)
        if self.early_stopping and state.stop is None:
            return  # a model on the way, chosen for its score
        gap, alpha = state.refit_gap, state.alpha
        if state.n_components and alpha is not None and self.refit in ("auto", "full"):
            # The descent ends by what it gains. For a small alpha the gap is far above its error,
            # as if Omega of the best model could be objective / alpha; let it be that of this one.
            gap = min(gap, (state.rows_dual_norm - alpha) * state.penalty)
        cure = "scale the features (StandardScaler, MaxAbsScaler), raise alpha, "
        if state.stop == "n_components":
            cure += f"raise n_components, which is {self.n_components}, "
        cure += "or "
        cure += f"raise max_iter, which is {self.max_iter}" if self.refit else 'use refit="output"'
        # A converged refit is at least that good.
        if gap > max(self.tol, LOOSEST_REFIT_TOL) * objective:
            trouble = f"a gap of {gap:.2g} for an objective of {objective:.2g}"
            message = f"the output layer is inaccurate: {trouble}; {cure}"
        elif state.stop == "no progress" and self.violation_ > 2 * (alpha or np.inf):
            message = (
                "training stopped because new basis vectors gained nothing, far from the optimum: "
                f"the violation is {self.violation_:.2g}, alpha {alpha:.2g}; {cure}"
            )
        else:
            return
        warnings.warn(message, ConvergenceWarning, stacklevel=3)
