"""What the six estimators share: parameters, the training loop, stages, interactions."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fastpoly.conditional_gradient import State, conditional_gradient
from fastpoly.design import Design
from fastpoly.estimators.progress import Progress
from fastpoly.model import PolyModel

Floats = NDArray[np.float64]

HISTORY = ("objective", "loss", "penalty", "violation", "violation_bound", "gap", "gap_bound")


class PolyEstimator(BaseEstimator):
    """Base of the estimators: the subclasses say what targets mean and name the activation.

    A subclass gives `_encode_targets(y, reset)`, which checks y, remembers what it needs to decode
    predictions, and returns the targets of the loss with the number of outputs; and `_model_loss`.
    """

    _activation: str

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        tau: float | None = None,
        penalty: Any = "l1/l2",
        loss: Any = "logistic",
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
        self.alpha = alpha
        self.tau = tau
        self.penalty = penalty
        self.loss = loss
        self.n_components = n_components
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
        self.verbose = verbose
        self.random_state = random_state

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # --- training ---

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None):
        """Fit the model.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)
        y : array-like, (n,) or (n, m)
        sample_weight : array-like, (n,), optional

        Returns
        -------
        self
        """
        start = getattr(self, "_state", None) if self.warm_start else None
        X, y = self._checked(X, y, reset=start is None)
        targets, m = self._encode_targets(y, reset=start is None)
        w = self._weights(X, y, sample_weight)
        rest = None
        if self.early_stopping:
            X, targets, w, rest = self._hold_out(X, y, targets, w)
        best, stages, history = self._train(X, targets, m, w, rest, start)
        self._remember(best, stages, history)
        return self

    def _checked(self, X: Any, y: ArrayLike, reset: bool) -> tuple[Any, Any]:
        return validate_data(
            self, X, y, accept_sparse="csr", dtype=[np.float64, np.float32],
            accept_large_sparse=True, multi_output=True, y_numeric=False, reset=reset,
        )  # fmt: skip

    def _weights(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Floats | None:
        if sample_weight is None:
            return None
        return _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)

    def _hold_out(self, X: Any, y: Any, targets: Floats, w: Floats | None):
        """Split off the validation part, by class where there are classes."""
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        rows = np.arange(X.shape[0])
        train, test = train_test_split(
            rows, test_size=self.validation_fraction, random_state=seed, stratify=self._strata(y)
        )
        held = X[test], y[test], None if w is None else w[test]
        return X[train], targets[train], None if w is None else w[train], held

    def _strata(self, y: Any) -> Any:
        return None

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _train(
        self, X: Any, targets: Floats, m: int, w: Floats | None, held: Any, start: State | None
    ) -> tuple[State, list[State], dict[str, Floats]]:
        design = Design(
            X, self._activation, fit_lower=self.fit_lower, n_threads=self.n_threads
        )
        states = conditional_gradient(
            design, targets,
            loss=self._model_loss(), penalty=self.penalty,
            alpha=self.alpha if self.tau is None else None, tau=self.tau,
            n_components=self.n_components, refit=self.refit, alpha_linear=self.alpha_linear,
            solver=self.solver, max_iter=self.max_iter, tol=self.tol, selection=self.selection,
            sample_weight=w, n_outputs=m, start=start, random_state=self._seed(),
        )  # fmt: skip
        history: dict[str, list] = {name: [] for name in (*HISTORY, "n_components", "seconds")}
        if held is not None:
            history["validation_score"] = []
        stages: list[State] = []
        best, best_score, since = None, -np.inf, 0
        with Progress(self.verbose, self.n_components) as progress:
            for state in states:
                stages.append(state)
                for name in (*HISTORY, "n_components"):
                    history[name].append(getattr(state, name))
                history["seconds"].append(sum(state.timings.values()))
                score = None
                if held is not None:
                    score = self._state_score(state, *held)
                    history["validation_score"].append(score)
                progress.show(state, score)
                if score is None or score > best_score:
                    best, since = state, 0
                    best_score = -np.inf if score is None else score
                else:
                    since += 1
                    if since >= self.n_iter_no_change:
                        break
        if not stages:
            best, stages = start, [start]
        return best, stages, {name: np.array(values) for name, values in history.items()}

    def _state_score(self, state: State, X: Any, y: Any, w: Floats | None) -> float:
        """The score of `score`, for a model that is still being trained."""
        self.model_ = self._as_model(state)
        return self.score(X, y, w)

    def _as_model(self, state: State) -> PolyModel:
        names = getattr(self, "feature_names_in_", None)
        return PolyModel(
            state.H,
            state.V,
            state.intercept,
            None if state.linear is None else state.linear.T,
            activation=self._activation,
            augment=self.fit_lower == "augment",
            feature_names=None if names is None else tuple(map(str, names)),
        )

    def _remember(self, best: State, stages: list[State], history: dict[str, Floats]) -> None:
        self._state = best
        self._stages = stages[: next(i for i, s in enumerate(stages) if s is best) + 1]
        self.history_ = history
        self.model_ = self._as_model(best)
        self.components_ = self.model_.H
        self.coef_ = self.model_.V
        self.intercept_ = self.model_.intercept
        if self.fit_lower == "explicit":
            self.linear_coef_ = self.model_.linear
        self.n_components_ = best.n_components
        self.n_iter_ = max(1, best.n_iter)
        self.objective_ = best.objective
        self.violation_ = best.violation
        if self.tau is not None:
            self.dual_gap_ = best.gap_bound
        if best.refit_gap > 0.1 * abs(best.objective):
            warnings.warn(
                f"the last refit stopped after max_iter={self.max_iter} iterations with a duality "
                f"gap of {best.refit_gap:.2g} for an objective of {best.objective:.2g}; raise "
                "max_iter or alpha, or scale the features",
                ConvergenceWarning,
                stacklevel=3,
            )

    # --- prediction ---

    def _outputs(self, X: Any) -> Floats:
        check_is_fitted(self, "model_")
        X = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )
        return self.model_.decision(X, n_threads=self.n_threads)

    def _staged_outputs(self, X: Any) -> Iterator[Floats]:
        check_is_fitted(self, "model_")
        X = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )
        for state in self._stages:
            yield self._as_model(state).decision(X, n_threads=self.n_threads)

    def staged_decision_function(self, X: Any) -> Iterator[Floats]:
        """Yield the decision function after each step of training, the empty model first."""
        for O in self._staged_outputs(X):
            yield self._decide(O)

    def staged_predict(self, X: Any) -> Iterator[NDArray]:
        """Yield the predictions after each step of training, the empty model first."""
        for O in self._staged_outputs(X):
            yield self._predict(O)

    def _decide(self, O: Floats) -> Floats:
        """Outputs in the shape of `decision_function`."""
        return O

    def interaction_matrix(self, output: int | str = 0) -> Floats:
        """The quadratic part of an output as a symmetric matrix; see `PolyModel`."""
        check_is_fitted(self, "model_")
        return self.model_.interaction_matrix(output)

    def top_interactions(self, output: int | str = 0, k: int = 10) -> list[tuple]:
        """The k pairs of features with the largest interaction; see `PolyModel`."""
        check_is_fitted(self, "model_")
        return self.model_.top_interactions(output, k)
