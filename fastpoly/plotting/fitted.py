"""The fitted models that displays show, and the axes that they draw on."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fastpoly.estimators.base import PolyEstimator
    from fastpoly.estimators.search import PathSearchCV


def get_axes(ax: "Axes | None", **size: Any) -> "Axes":
    """The given axes, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib; install it with: pip install matplotlib"
        ) from error
    return plt.subplots(layout="constrained", **size)[1] if ax is None else ax


def fitted_estimator(estimator: Any) -> "tuple[PolyEstimator, list[Any]]":
    """The fitted estimator inside searches and Pipelines, and the transformers in front of it."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import check_is_fitted

    from fastpoly.estimators.base import PolyEstimator

    model, heads = estimator, []
    while not isinstance(model, PolyEstimator):
        if hasattr(model, "estimator") and hasattr(model, "refit"):  # a search
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
    return model, heads


def feature_names_of(model: "PolyEstimator", heads: list[Any]) -> list[str] | None:
    """Names of the features as they reach a fitted estimator behind these transformers."""
    names = model._feature_names()
    if names is None and heads:
        try:
            for head in heads:
                names = head.get_feature_names_out(names)
        except (AttributeError, ValueError):  # the transformer gives no names
            return None
    return None if names is None else list(map(str, names))


def fitted_search(search: Any) -> "PathSearchCV":
    """The search, taken out of a Pipeline; raises NotFittedError before `fit`."""
    from sklearn.pipeline import Pipeline
    from sklearn.utils.validation import check_is_fitted

    from fastpoly.estimators.search import PathSearchCV

    search = search[-1] if isinstance(search, Pipeline) else search
    if not isinstance(search, PathSearchCV):
        raise TypeError(f"a PathSearchCV is needed, got {type(search).__name__}")
    check_is_fitted(search, "cv_results_")
    return search
