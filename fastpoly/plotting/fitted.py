"""Find the fitted model inside searches and Pipelines, and the names of its features."""

from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.search import PathSearchCV, pipeline_parts


def _opened(estimator: Any) -> tuple[list[Pipeline], Any]:
    """The model inside searches and Pipelines, and the transformers in front of it."""
    heads: list[Pipeline] = []
    while True:
        if hasattr(estimator, "estimator") and hasattr(estimator, "refit"):  # a search
            check_is_fitted(estimator)
            if not hasattr(estimator, "best_estimator_"):
                raise ValueError("the search has refit=False and no best_estimator_ to show")
            estimator = estimator.best_estimator_
        elif isinstance(estimator, Pipeline):
            head, estimator, _ = pipeline_parts(estimator)
            heads += [] if head is None else [head]
        else:
            return heads, estimator


def fitted_estimator(estimator: Any) -> PolyEstimator:
    """The fitted estimator inside a search or a Pipeline; raises NotFittedError before `fit`."""
    _, model = _opened(estimator)
    if not isinstance(model, PolyEstimator):
        raise TypeError(
            "one of fastpoly's estimators, a search or a Pipeline that ends with one is needed, "
            f"got {type(estimator).__name__}"
        )
    check_is_fitted(model, "model_")
    return model


def feature_names_of(estimator: Any) -> list[str] | None:
    """Names of the features as they reach the fitted estimator inside a search or a Pipeline."""
    heads, model = _opened(estimator)
    names = model._feature_names()
    if names is None and heads:
        try:
            for head in heads:
                names = head.get_feature_names_out(names)
        except (AttributeError, ValueError):  # the transformer gives no names
            return None
    return None if names is None else list(map(str, names))


def fitted_search(search: Any) -> PathSearchCV:
    """The search, taken out of a Pipeline; raises NotFittedError before `fit`."""
    _, search, _ = pipeline_parts(search)
    if not isinstance(search, PathSearchCV):
        raise TypeError(f"a PathSearchCV is needed, got {type(search).__name__}")
    check_is_fitted(search, "cv_results_")
    return search
