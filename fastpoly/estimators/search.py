"""Choosing alpha and the number of basis vectors, with one run per alpha and fold."""

import numbers
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone, is_classifier
from sklearn.metrics import check_scoring
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit, check_cv
from sklearn.utils import Tags, get_tags, indexable
from sklearn.utils.metaestimators import available_if
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.rows import safe_rows
from fastpoly.estimators.scoring import path_scores
from fastpoly.kernels.checks import as_float_array
from fastpoly.path import alpha_grid

Floats = NDArray[np.float64]


def _delegated(name: str):
    """A condition for `available_if`: the fitted estimator, or the one given, has the method."""

    def check(search: "PathSearchCV") -> bool:
        getattr(getattr(search, "best_estimator_", search.estimator), name)
        return True

    return available_if(check)


class PathSearchCV(MetaEstimatorMixin, BaseEstimator):
    """Cross-validated choice of alpha and of the number of basis vectors.

    One run with n_components=K passes through models of several sizes. This search scores them
    all: a grid of A alphas and K sizes takes A runs a fold, where `GridSearchCV` needs A K fits.

    Training adds a block of basis vectors per round, so a run has models of a few sizes only; the
    row (alpha, n_components) of the table has the score of the last one with at most that many
    vectors. With ``block=1`` in the estimator there is a model of every size, at a higher cost;
    and with ``block=1, refit="output"`` the table is that of `GridSearchCV`.

    Parameters
    ----------
    estimator : estimator
        One of the six estimators of fastpoly. Its n_components is the largest number of basis
        vectors that is tried; its alpha is not used. Give it an int random_state if the search
        shall be reproducible.
    alphas : array-like, optional
        Positive and decreasing. By default a geometric grid from the alpha of the data at which
        the first basis vector enters.
    n_alphas : int, default=10
        Length of the default grid.
    alpha_min_ratio : float, default=1e-3
        Smallest over largest alpha of the default grid.
    cv : None, int, float, splitter or iterable, default=None
        None for 5 folds, a number of folds, a share of the rows to hold out in a single split
        (0 < cv < 1, stratified by class, and by ordinal level where it occurs often enough), or
        any splitter of scikit-learn.
    scoring : str or callable, optional
        A scorer of scikit-learn; by default the `score` of the estimator.
    refit : bool, default=True
        Whether to fit the best pair on all data afterwards, for `predict` and the like.
    n_jobs : int, optional
        Runs at a time, through joblib.
    verbose : int, default=0
        Verbosity of joblib.

    Attributes
    ----------
    cv_results_ : dict
        A row a pair: "params", "param_alpha", "param_n_components", "split<i>_test_score",
        "mean_test_score", "std_test_score", "rank_test_score"; and "mean_fit_time",
        "std_fit_time", "mean_score_time", "std_score_time", the seconds of a whole run, which is
        shared by all sizes of its alpha.
    alphas_ : ndarray
    best_index_ : int
        The row of the best pair; of equal ones the larger alpha, then the fewer basis vectors,
        so that its n_components is the size of a model that was scored.
    best_params_ : dict
        "alpha" and "n_components".
    best_score_ : float
    best_estimator_ : estimator
        Fitted on all data, with `refit`.
    scorer_ : callable
    n_splits_ : int
    classes_ : ndarray
        Of the best estimator, where it has classes or levels.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    Notes
    -----
    alpha is on the scale of a loss summed over rows: a fold has fewer rows than all data, just as
    in `GridSearchCV`.

    A split whose training part lacks a class or level of its test part has the score NaN where the
    scorer refuses such labels, and so has a split with a single class to train on. A split without
    any score is left out of the means, with a warning.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import PathSearchCV, PolynomialNetworkRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((120, 4))
    >>> y = X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(120)
    >>> model = PolynomialNetworkRegressor(n_components=5, random_state=0)
    >>> search = PathSearchCV(model, n_alphas=4, cv=0.25).fit(X, y)
    >>> sorted(search.best_params_), search.best_score_ > 0.95
    (['alpha', 'n_components'], True)
    >>> len(search.cv_results_["params"])  # 4 alphas, 5 sizes, from 4 runs
    20
    """

    def __init__(
        self,
        estimator: PolyEstimator,
        *,
        alphas: ArrayLike | None = None,
        n_alphas: int = 10,
        alpha_min_ratio: float = 1e-3,
        cv: Any = None,
        scoring: Any = None,
        refit: bool = True,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.alpha_min_ratio = alpha_min_ratio
        self.cv = cv
        self.scoring = scoring
        self.refit = refit
        self.n_jobs = n_jobs
        self.verbose = verbose

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.estimator_type = inner.estimator_type
        tags.classifier_tags, tags.regressor_tags = inner.classifier_tags, inner.regressor_tags
        tags.target_tags, tags.input_tags = inner.target_tags, inner.input_tags
        return tags

    def fit(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, *, groups: Any = None
    ) -> Self:
        """Score every pair, and fit the best one.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)
        y : array-like, (n,) or (n, m)
        sample_weight : array-like, (n,), optional
            Weights of the rows in training; test scores are not weighted.
        groups : array-like, (n,), optional
            For a splitter that needs groups.

        Returns
        -------
        self
        """
        self._check_parameters()
        model = clone(self.estimator).set_params(alpha=1.0)  # a stand-in: its alpha is not used
        model._check_parameters()
        X, y, sample_weight, groups = indexable(safe_rows(X), y, sample_weight, groups)
        prepared = clone(model)
        _, labels, *_ = prepared._prepare(X, y, sample_weight)  # raises what a fit would
        self.scorer_ = check_scoring(model, self.scoring)
        self.alphas_ = self._grid(clone(model), X, y, sample_weight)
        splits = self._splits(prepared, labels, X, y, groups)
        runs = [(alpha, split) for alpha in self.alphas_ for split in splits]
        results = Parallel(n_jobs=self.n_jobs, verbose=self.verbose)(
            delayed(path_scores)(
                clone(model).set_params(alpha=float(alpha)), X, y, sample_weight, *split,
                self.scorer_,
            )
            for alpha, split in runs
        )  # fmt: skip
        self.n_splits_ = len(splits)
        shape = len(self.alphas_), self.n_splits_, model.n_components
        scores, *times = zip(*results, strict=True)
        self._tabulate(np.reshape(scores, shape).transpose(0, 2, 1), *times)
        if self.refit:
            self.best_estimator_ = clone(model).set_params(**self.best_params_)
            weights = {} if sample_weight is None else {"sample_weight": sample_weight}
            self.best_estimator_.fit(X, y, **weights)
            for name in ("classes_", "feature_names_in_", "n_features_in_"):
                if hasattr(self.best_estimator_, name):
                    setattr(self, name, getattr(self.best_estimator_, name))
        return self

    def _check_parameters(self) -> None:
        if not isinstance(self.estimator, PolyEstimator):
            raise TypeError(
                f"estimator must be one of fastpoly's estimators, got {self.estimator!r}; put a "
                "PathSearchCV into a Pipeline, not a Pipeline into it"
            )
        if self.estimator.tau is not None:
            raise ValueError("the search goes over alpha: set tau=None in the estimator")
        if self.estimator.checkpoint is not None:
            raise ValueError("the runs of a search cannot share a file: set checkpoint=None")
        if self.estimator.early_stopping:
            raise ValueError(
                "the search chooses the number of basis vectors: set early_stopping=False in the "
                "estimator"
            )
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise TypeError(f"scoring must be one scorer, its name or None, got {self.scoring!r}")
        if not isinstance(self.refit, (bool, np.bool_)):
            raise TypeError(f"refit must be True or False, got {self.refit!r}")

    def _grid(self, model: PolyEstimator, X: Any, y: Any, sample_weight: Any) -> Floats:
        if self.alphas is None:
            # Without anything to select, the empty model is optimal for every alpha.
            largest = model._alpha_max(X, y, sample_weight) or 1.0
            return alpha_grid(largest, self.n_alphas, self.alpha_min_ratio)
        alphas = as_float_array(self.alphas, "alphas", (None,))
        if not alphas.size:
            raise ValueError("alphas is empty; give at least one, or None for a default grid")
        if alphas.min() <= 0 or (np.diff(alphas) >= 0).any():
            raise ValueError("alphas must be positive and decreasing; sort them, largest first")
        return alphas

    def _splits(
        self, model: PolyEstimator, labels: NDArray, X: Any, y: Any, groups: Any
    ) -> list[tuple[NDArray, NDArray]]:
        """Training and test rows; `labels` is y as the model, which has seen it, takes it."""
        if isinstance(self.cv, numbers.Real) and not isinstance(self.cv, numbers.Integral):
            if not 0 < self.cv < 1:
                raise ValueError(f"cv as a share of the rows must be in 0..1, got {self.cv}")
            seed = model.random_state if isinstance(model.random_state, numbers.Integral) else None
            strata = model._strata(labels, float(self.cv))
            kind = ShuffleSplit if strata is None else StratifiedShuffleSplit
            split = kind(n_splits=1, test_size=float(self.cv), random_state=seed)
            return list(split.split(X, strata))
        return list(check_cv(self.cv, y, classifier=is_classifier(model)).split(X, y, groups))

    def _tabulate(self, scores: Floats, fit_times: ArrayLike, score_times: ArrayLike) -> None:
        """cv_results_ and the best pair from scores (alphas, sizes, splits) and times of runs."""
        n_alphas, n_sizes, n_splits = scores.shape
        alphas = np.repeat(self.alphas_, n_sizes)
        sizes = np.tile(np.arange(1, n_sizes + 1), n_alphas)
        scores = scores.reshape(-1, n_splits)
        counts = ~np.isnan(scores).all(axis=0)
        if not counts.any():
            raise ValueError(
                "all scores are NaN: R^2 needs test parts of two rows, and classes or levels of a "
                "test part must occur in training; take fewer or stratified splits"
            )
        if not counts.all():
            warnings.warn(
                f"{n_splits - counts.sum()} of {n_splits} splits cannot be scored and are left out "
                "of the means: classes or levels are missing in training, or rows to test with",
                stacklevel=3,
            )
        mean = scores[:, counts].mean(axis=1)
        times = {}
        for name, values in (("fit_time", fit_times), ("score_time", score_times)):
            runs = np.reshape(values, (n_alphas, n_splits))
            times[f"mean_{name}"] = runs.mean(axis=1).repeat(n_sizes)
            times[f"std_{name}"] = runs.std(axis=1).repeat(n_sizes)
        rank = rankdata(-np.where(np.isnan(mean), -np.inf, mean), method="min").astype(np.int32)
        self.cv_results_ = {
            **times,
            "param_alpha": np.ma.MaskedArray(alphas, mask=False),
            "param_n_components": np.ma.MaskedArray(sizes, mask=False),
            "params": [
                {"alpha": float(a), "n_components": int(k)}
                for a, k in zip(alphas, sizes, strict=True)
            ],
            **{f"split{i}_test_score": scores[:, i].copy() for i in range(n_splits)},
            "mean_test_score": mean,
            "std_test_score": scores[:, counts].std(axis=1),
            "rank_test_score": rank,
        }
        self.best_index_ = int(rank.argmin())
        self.best_params_ = self.cv_results_["params"][self.best_index_]
        self.best_score_ = float(mean[self.best_index_])

    def _best(self) -> PolyEstimator:
        if not self.refit:
            raise AttributeError("refit=False: there is no best_estimator_ to predict with")
        check_is_fitted(self, "best_estimator_")
        return self.best_estimator_

    def predict(self, X: Any) -> NDArray:
        """`predict` of the best estimator."""
        return self._best().predict(X)

    @_delegated("decision_function")
    def decision_function(self, X: Any) -> Floats:
        """`decision_function` of the best estimator."""
        return self._best().decision_function(X)

    @_delegated("predict_proba")
    def predict_proba(self, X: Any) -> Floats:
        """`predict_proba` of the best estimator."""
        return self._best().predict_proba(X)

    def score(self, X: Any, y: ArrayLike) -> float:
        """Score of the best estimator, by `scoring`."""
        best = self._best()
        return self.scorer_(best, X, y)
