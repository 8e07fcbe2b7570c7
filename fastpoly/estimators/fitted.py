"""What a display can show: a fitted estimator, taken out of its search, or a fitted search."""

from typing import Any

from sklearn.utils.validation import check_is_fitted

from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.search import PathSearchCV


def fitted_estimator(estimator: Any) -> PolyEstimator:
    """The estimator, or the best one of a search; raises NotFittedError before `fit`."""
    if hasattr(estimator, "estimator"):
        check_is_fitted(estimator, "cv_results_")
        if not hasattr(estimator, "best_estimator_"):
            raise ValueError("the search has refit=False and no best_estimator_ to show")
        estimator = estimator.best_estimator_
    if not isinstance(estimator, PolyEstimator):
        raise TypeError(f"one of fastpoly's estimators is needed, got {type(estimator).__name__}")
    check_is_fitted(estimator, "model_")
    return estimator


def fitted_search(search: Any) -> PathSearchCV:
    """The search; raises NotFittedError before `fit`."""
    if not isinstance(search, PathSearchCV):
        raise TypeError(f"a PathSearchCV is needed, got {type(search).__name__}")
    check_is_fitted(search, "cv_results_")
    return search
