"""Choosing alpha and the number of basis vectors: one path of alphas per fold."""

import copy
from time import perf_counter
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike, NDArray
from sklearn import get_config
from sklearn.base import (
    BaseEstimator,
    MetaEstimatorMixin,
    TransformerMixin,
    clone,
    is_classifier,
)
from sklearn.metrics import check_scoring
from sklearn.model_selection._search import BaseSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils import Tags, get_tags, indexable, metadata_routing
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted
from tqdm.auto import tqdm

from fastpoly.estimators import folds
from fastpoly.estimators.advice import collected_warnings, warn, warn_once
from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.data import check_csr
from fastpoly.estimators.prediction import Documented, Reader
from fastpoly.kernels.checks import as_flag
from fastpoly.path import alpha_grid, as_alphas, largest_alpha
from fastpoly.rows.shards import Shards
from fastpoly.state import Floats
from fastpoly.strengths import default_ridge


class MetaEstimator(Documented, MetaEstimatorMixin, BaseEstimator):
    """A meta-estimator with the tags of its `estimator`."""

    estimator: Any

    def __sklearn_tags__(self) -> Tags:
        tags, inner = super().__sklearn_tags__(), get_tags(self.estimator)
        for part in ("classifier", "regressor", "transformer", "target", "input"):
            setattr(tags, f"{part}_tags", getattr(inner, f"{part}_tags"))
        tags.estimator_type = inner.estimator_type
        return tags


class PathSearchCV(Reader, MetaEstimator, TransformerMixin, BaseSearchCV):
    """Cross-validated choice of alpha and of the number of basis vectors.

    Each fold walks down a path of alphas, the largest first, and starts every run from the model
    of the alpha before. A run adds basis vectors round by round, and the model of every round is
    scored. So a grid of A alphas and K sizes takes one path per fold, where `GridSearchCV` needs
    A K fits. The row (alpha, n_components) of the table has the score of the last model with at
    most that many vectors on the path down to that alpha. A path over the default grid ends early
    if a third of its alphas in a row bring no better score on the test rows of the fold.

    Parameters
    ----------
    estimator : estimator
        One of the six estimators of fastpoly, or a Pipeline whose last step is one; its
        transformers are fitted in every fold. Its n_components is the largest number of basis
        vectors to try; its alpha is not used. With an int as its random_state, the search is
        reproducible.
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
        A scorer of scikit-learn. By default the log-loss for classifiers with probabilities (for
        multi-label y the mean over the labels), and `score` for other estimators.
    one_standard_error : bool, default=False
        Choose the largest alpha, and then the fewest basis vectors, whose mean score is within a
        standard error of the best one.
    refit : bool, default=True
        Whether to fit the best pair on all data afterwards, for `predict` and the like. That fit
        starts from the model of the first fold.
    n_jobs : int, optional
        How many folds to run in parallel, through joblib, with one thread each.
    verbose : int, default=0
        1 or more shows a progress bar over folds and alphas, with the best score so far.

    Attributes
    ----------
    cv_results_ : dict
        One row per pair, as in `GridSearchCV`. Times are those of the run for an alpha, which all
        sizes share. Scores are NaN where all models of an alpha have more basis vectors, because
        its run starts from the model of the alpha before. For a Pipeline, the names of parameters
        have the prefix of its last step.
    alphas_ : ndarray
    best_index_ : int
        The row of the best pair; of equal ones, that with the larger alpha, then that with fewer
        basis vectors.
    best_params_ : dict
        "alpha" and "n_components".
    best_score_ : float
    best_estimator_ : estimator
        Fitted on all data, with `refit`.
    refit_time_ : float
        Seconds of that fit.
    scorer_, n_splits_, n_features_in_, feature_names_in_
        As in `GridSearchCV`.
    classes_ : ndarray
        The classes or levels of the best estimator, if it has any.

    Notes
    -----
    alpha is on the scale of a loss summed over rows, and a fold has fewer rows than all data. This
    is the same in `GridSearchCV`.

    A split whose training part lacks a class or level of its test part has the score NaN if the
    scorer refuses such labels. So does a split with a single class to train on. A split without any
    score is left out of the means, with a warning.

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
    >>> len(search.cv_results_["params"])  # 4 alphas, 5 sizes, from one path
    20
    """

    def __init__(
        self, estimator: PolyEstimator | Pipeline, *, alphas: ArrayLike | None = None,
        n_alphas: int = 10, alpha_min_ratio: float = 1e-3, cv: Any = None, scoring: Any = None,
        one_standard_error: bool = False, refit: bool = True, n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:  # fmt: skip
        vars(self).update((name, value) for name, value in locals().items() if name != "self")

    def fit(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None, *,
        groups: Any = None, **params: Any,
    ) -> Self:  # fmt: skip
        """Score the pairs along the paths, and fit the best one.

        Parameters
        ----------
        X, y, sample_weight
            As for the estimator. Test scores are not weighted.
        groups : array-like, (n,), optional
            For a splitter that takes groups, such as `GroupKFold`; an error if cv is None or a
            number.
        **params
            With scikit-learn's ``enable_metadata_routing``, what the estimator, the scorer and the
            splitter request, sample_weight and groups included, goes to them.

        Returns
        -------
        self
        """
        found = copy.copy(self)
        with collected_warnings() as collected:
            found._search(X, y, {"sample_weight": sample_weight, "groups": groups, **params})
        warn_once(collected)
        self.__dict__ = found.__dict__  # in one step, for other threads and for Ctrl-C
        return self

    def _search(self, X: Any, y: Any, params: dict[str, Any]) -> None:
        """Score the pairs along the paths, and fit the best one."""
        self._check_parameters()
        for name in [name for name in vars(self) if name.endswith("_")]:
            del vars(self)[name]  # left from an earlier fit
        head, model, self._prefix = folds.pipeline_parts(self.estimator)
        rows = self._rows(X, y, {name: each for name, each in params.items() if each is not None})
        if head is not None and isinstance(X, Shards):
            raise TypeError("shards cannot go through a Pipeline; transform the rows first")
        model = clone(model).set_params(alpha=None)  # its alpha is not used
        model._check_parameters()
        prepared, w = clone(model), rows.metadata["model"].get("sample_weight")
        data = prepared._prepare(rows.transformed(head and clone(head)), rows.y, w)
        self.scorer_, _ = self._get_scorers()
        if self.alphas is not None:
            self.alphas_ = as_alphas(self.alphas)
        else:
            objective = prepared._begin(data)
            if model.alpha_linear is None and objective.explicit:
                model.alpha_linear = default_ridge(objective, prepared._options())
            largest = largest_alpha(objective.at(alpha_linear=model.alpha_linear), model.tol)
            # Where there is nothing to select, the empty model is optimal for every alpha.
            self.alphas_ = alpha_grid(largest or 1.0, self.n_alphas, self.alpha_min_ratio)
        splits = rows.splits(self.cv, prepared, data.y)
        self.n_splits_ = len(splits)
        results = self._run(head, model, rows, splits)
        self.cv_results_ = folds.table(results, self.alphas_, model.n_components, self._prefix)
        self._choose()
        self._warn_at_borders(model.n_components)
        if self.refit:
            self._refit(results[0].models, rows, model.alpha_linear)

    def _rows(self, X: Any, y: Any, given: dict[str, Any]) -> folds.SearchRows:
        """The rows as they were given, with the metadata for each that takes or requests some."""
        metadata: dict[str, Any] = {"head": {}, "model": given, "splitter": {}, "scorer": {}}
        if isinstance(X, Shards):
            if "groups" in given:
                raise ValueError("groups must be None: give cv as pairs of shards instead")
            return folds.SearchRows(X, y, metadata)
        if type(y).__module__.startswith("pandas") and not hasattr(y, "iloc"):
            y = np.asarray(y)  # the array of a Series, which takes no list of positions
        X, y, *values = indexable(check_csr(X), y, *given.values())
        given = dict(zip(given, values, strict=True))
        if not get_config()["enable_metadata_routing"]:
            if "groups" in given:
                metadata["splitter"] = {"groups": given.pop("groups")}
            if given.keys() - {"sample_weight"}:
                raise TypeError(f"fit takes {sorted(given)} only with enable_metadata_routing=True")
            return folds.SearchRows(X, y, metadata | {"model": given})
        routed = metadata_routing.process_routing(self, "fit", **given)
        head, model, _ = folds.pipeline_parts(self.estimator)
        metadata |= {"splitter": routed.splitter.split, "scorer": routed.scorer.score}
        for name, taker, method in (("head", head, "fit_transform"), ("model", model, "fit")):
            request = metadata_routing.get_routing_for_object(taker)
            names = request.consumes(method, routed.estimator.fit)
            metadata[name] = {each: given[each] for each in names}
        return folds.SearchRows(X, y, metadata)

    def _get_scorers(self) -> tuple[Any, str]:
        """The scorer, as scikit-learn asks for it to route metadata."""
        _, model, _ = folds.pipeline_parts(self.estimator)
        # Accuracy on few rows is a step function of the model; the log-loss distinguishes better.
        if self.scoring is None and is_classifier(model) and hasattr(model, "predict_proba"):
            return folds.negative_log_loss, "score"
        return check_scoring(model, self.scoring), "score"

    def _run(
        self, head: Pipeline | None, model: PolyEstimator, rows: folds.SearchRows, splits: list
    ) -> list[folds.FoldResult]:
        """Run one path per fold, with a progress bar if `verbose` asks for one."""
        serial, results, scores = effective_n_jobs(self.n_jobs) == 1, [], [-np.inf]
        if not serial and model.n_threads is None:
            model = clone(model).set_params(n_threads=1)
        total = len(splits) * len(self.alphas_)
        with tqdm(total=total, unit="alpha", disable=not self.verbose) as bar:

            def report(found: Floats, steps: int = 1) -> None:
                scores.append(np.fmax.reduce(np.ravel(found)))
                bar.set_postfix({"best score of a fold": f"{np.nanmax(scores):.4f}"}, refresh=False)
                bar.update(steps)

            runs = (
                delayed(folds.path_scores)(
                    clone(model), head and clone(head), rows, split, self.alphas_, self.scorer_,
                    all_alphas=self.alphas is not None, keep_models=i == 0,
                    report=report if serial else None,
                )
                for i, split in enumerate(splits)
            )  # fmt: skip
            for result in Parallel(n_jobs=self.n_jobs, return_as="generator")(runs):
                for each in result.warnings:
                    warn(*each)
                if not serial:
                    report(result.scores, len(self.alphas_))
                results.append(result)
        return results

    def _refit(self, models: NDArray, rows: folds.SearchRows, ridge: float | None) -> None:
        """Fit the best pair on all rows, from the model (a, K) of a fold."""
        best = clone(self.estimator).set_params(**self.best_params_)
        head, model, _ = folds.pipeline_parts(best)
        model.set_params(alpha_linear=ridge)
        X, start = rows.transformed(head), models.flat[self.best_index_]
        if head is not None:
            best.steps[:-1] = head.steps
        begun, w = perf_counter(), rows.metadata["model"].get("sample_weight")
        advice = model._fit(X, rows.y, w, start, by_score=True)
        self.refit_time_ = perf_counter() - begun
        self.best_estimator_ = best
        said = self.alphas is None and self._largest_alpha_is_best()  # that the model is linear
        if advice is not None and not (said and advice[1] is UserWarning):
            warn(*advice)
        if hasattr(best, "feature_names_in_"):
            self.feature_names_in_ = best.feature_names_in_

    def _check_parameters(self) -> None:
        _, model, _ = folds.pipeline_parts(self.estimator)
        if not isinstance(model, PolyEstimator):
            raise TypeError(
                "estimator must be one of fastpoly's estimators, or a Pipeline whose last step is "
                f"one, got {self.estimator!r}"
            )
        for name, unset, why in (
            ("tau", None, "the search goes over alpha"),
            ("checkpoint", None, "the runs of a search cannot share a file"),
            ("early_stopping", False, "the search chooses the number of basis vectors"),
        ):
            if getattr(model, name) != unset:
                raise ValueError(f"{why}: set {name}={unset} in the estimator")
        if not (self.scoring is None or isinstance(self.scoring, str) or callable(self.scoring)):
            raise TypeError(f"scoring must be one scorer, its name or None, got {self.scoring!r}")
        for name in ("refit", "one_standard_error"):
            as_flag(getattr(self, name), name)

    def _choose(self) -> None:
        """The best row of the table: by its mean, or the simplest within a standard error of it."""
        mean, rank = self.cv_results_["mean_test_score"], self.cv_results_["rank_test_score"]
        best = int(rank.argmin())
        if self.one_standard_error:
            splits = [self.cv_results_[f"split{i}_test_score"] for i in range(self.n_splits_)]
            n = sum(not np.isnan(scores).all() for scores in splits)
            if n < 2:
                raise ValueError("one_standard_error=True needs two splits or more; raise cv")
            error = self.cv_results_["std_test_score"][best] / np.sqrt(n - 1)
            best = int(np.argmax(mean >= mean[best] - error))
        self.best_index_, self.best_score_ = best, float(mean[best])
        self.best_params_ = self.cv_results_["params"][best]

    def _warn_at_borders(self, n_sizes: int) -> None:
        """Warn if a larger grid may hold a better pair."""
        (alpha, size), default = self.best_params_.values(), self.alphas is None
        at, cures = f"the best alpha, {alpha:.3g}, is the", []
        if alpha == self.alphas_[-1] and len(self.alphas_) > 1:
            cure = "lower alpha_min_ratio" if default else "add smaller alphas"
            cures.append(f"{at} smallest of the grid: {cure}")
        if self._largest_alpha_is_best():
            cure = "the best model has no interactions" if default else "add larger ones"
            cures.append(f"{at} largest of the grid: {cure}")
        elif size == n_sizes:
            cures.append(f"the best size is n_components={n_sizes}: raise n_components")
        if cures:
            warn("; ".join(cures))

    def _largest_alpha_is_best(self) -> bool:
        """Whether the smallest models are best."""
        alpha, _ = self.best_params_.values()
        return alpha == self.alphas_[0] and len(self.alphas_) > 1

    def score(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None,
        **params: Any,
    ) -> float:  # fmt: skip
        """Score of the best estimator, by `scoring`; weights and `params` go to the scorer."""
        if not self.refit:
            raise AttributeError("refit=False: there is no best_estimator_ to score")
        check_is_fitted(self, "best_estimator_")
        y = X.targets() if y is None and isinstance(X, Shards) else y
        given = params if sample_weight is None else {"sample_weight": sample_weight, **params}
        if get_config()["enable_metadata_routing"]:
            given = metadata_routing.process_routing(self, "score", **given).scorer.score
        return self.scorer_(self.best_estimator_, X, y, **given)
