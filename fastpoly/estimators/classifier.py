"""Binary, multi-class and multi-label classification."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, type_of_target

from fastpoly.estimators.base import PolyEstimator

Floats = NDArray[np.float64]


def _has_probabilities(estimator: "PolyClassifier") -> bool:
    if estimator.loss != "logistic":
        raise AttributeError(f'predict_proba needs loss="logistic", not {estimator.loss!r}')
    return True


class PolyClassifier(ClassifierMixin, PolyEstimator):
    """Base of the two classifiers. Two classes or more: one output a class; 2-D indicator y:
    multi-label, one output a label with the binary form of the loss."""

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
        class_weight: Any = None,
        n_threads: int | None = None,
        verbose: int = 0,
        random_state: Any = None,
    ) -> None:
        super().__init__(
            alpha=alpha, tau=tau, penalty=penalty, loss=loss, n_components=n_components,
            refit=refit, fit_lower=fit_lower, alpha_linear=alpha_linear, solver=solver,
            max_iter=max_iter, tol=tol, selection=selection, early_stopping=early_stopping,
            validation_fraction=validation_fraction, n_iter_no_change=n_iter_no_change,
            warm_start=warm_start, n_threads=n_threads, verbose=verbose,
            random_state=random_state,
        )  # fmt: skip
        self.class_weight = class_weight

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    def _encode_targets(self, y: Any, reset: bool) -> tuple[Floats, int]:
        check_classification_targets(y)
        self._multilabel = type_of_target(y).startswith("multilabel")
        if self._multilabel:
            y = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
            self.classes_ = np.arange(y.shape[1])
            return np.where(y > 0, 1.0, -1.0), y.shape[1]
        if y.ndim == 2:
            y = y.ravel()
        classes = np.unique(y)
        if not reset and not np.array_equal(classes, self.classes_):
            raise ValueError("warm_start needs the classes of the earlier fit; refit without it")
        if len(classes) < 2:
            raise ValueError(
                f"This solver needs samples of at least 2 classes in the data, but the data "
                f"contains only one class: {classes[0]!r}"
            )
        self.classes_ = classes
        return np.searchsorted(classes, y), len(classes)

    def _weights(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Floats | None:
        w = super()._weights(X, y, sample_weight)
        if self.class_weight is None:
            return w
        by_class = compute_sample_weight(self.class_weight, y)
        return by_class if w is None else w * by_class

    def _strata(self, y: Any) -> Any:
        return None if self._multilabel else y

    def _model_loss(self) -> Any:
        if not isinstance(self.loss, str):
            return self.loss
        if self.loss not in ("logistic", "smoothed_hinge", "squared_hinge"):
            raise ValueError(
                f"unknown loss {self.loss!r}; known: 'logistic', 'smoothed_hinge', 'squared_hinge'"
            )
        if self._multilabel:
            if self.loss == "smoothed_hinge":
                raise ValueError(
                    "loss 'smoothed_hinge' has no multi-label form; use 'logistic' or "
                    "'squared_hinge'"
                )
            return "binary_" + self.loss
        return {
            "logistic": "multiclass_logistic",
            "smoothed_hinge": "smoothed_multiclass_hinge",
            "squared_hinge": "multiclass_squared_hinge",
        }[self.loss]

    def _decide(self, O: Floats) -> Floats:
        if not self._multilabel and len(self.classes_) == 2:
            return O[:, 1] - O[:, 0]
        return O

    def _predict(self, O: Floats) -> NDArray:
        if self._multilabel:
            return (O > 0).astype(int)
        return self.classes_[O.argmax(axis=1)]

    def decision_function(self, X: Any) -> Floats:
        """Outputs of the classes, (n, m); for two classes their difference, (n,)."""
        return self._decide(self._outputs(X))

    def predict(self, X: Any) -> NDArray:
        """Predicted classes, (n,), or the label indicator, (n, m)."""
        return self._predict(self._outputs(X))

    def _probabilities(self, O: Floats) -> Floats:
        return expit(O) if self._multilabel else softmax(O, axis=1)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Floats:
        """Class probabilities, (n, m), or for multi-label y the probability of each label."""
        return self._probabilities(self._outputs(X))

    @available_if(_has_probabilities)
    def staged_predict_proba(self, X: Any) -> Iterator[Floats]:
        """Yield the probabilities after each step of training, the empty model first."""
        for O in self._staged_outputs(X):
            yield self._probabilities(O)


class PolynomialNetworkClassifier(PolyClassifier):
    _activation = "squared"


class FactorizationMachineClassifier(PolyClassifier):
    _activation = "anova"
