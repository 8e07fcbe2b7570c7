"""Binary, multi-class and multi-label classification."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import Tags
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from fastpoly.estimators.base import PolyEstimator, with_shared_parameters
from fastpoly.estimators.data import stored_targets, usable_names
from fastpoly.estimators.documentation import documented
from fastpoly.estimators.prediction import WithProbabilities
from fastpoly.kernels.checks import as_weights, shown
from fastpoly.model import PolyModel
from fastpoly.problem import named_loss
from fastpoly.rows import Shards

Floats = NDArray[np.float64]

LOSS = """
loss : {"logistic", "smoothed_hinge", "squared_hinge"} or loss object, default="logistic"
    The multi-class form where y is 1-D; the binary form, summed over labels, where it is a label
    indicator."""

CLASS_WEIGHT = """\
class_weight : dict, list of dict, "balanced" or None, default=None
    Weights of the classes, multiplied with sample_weight; a list has one dict per label, whose
    weights are multiplied too.
"""

CLASSES = """
classes_ : ndarray, (m,)
    The classes, in the order of the outputs; 0 .. m-1 where y is a label indicator.
"""


class PolyClassifier(ClassifierMixin, WithProbabilities, PolyEstimator):
    """Base of the two classifiers.

    With two or more classes, there is one output per class. A 2-D indicator y is multi-label: there
    is one output per label, with the binary form of the loss.
    """

    @with_shared_parameters
    def __init__(self, *, loss: Any = "logistic", class_weight: Any = None, **shared: Any) -> None:
        super().__init__(loss=loss, **shared)
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        # Products of different features have no constant term: no class can be favored by default.
        tags.classifier_tags.poor_score = (
            self._activation == "anova" and self.fit_lower != "explicit"
        )
        return tags

    def _split_targets(self, y: Any) -> tuple[NDArray, NDArray | None, NDArray]:
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y")
        indicator = kind == "multilabel-indicator"
        if indicator:
            y = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
        if kind == "multiclass-multioutput" or (indicator and not np.isin(y, (0, 1)).all()):
            raise ValueError(
                "a 2-D y must be a label indicator, of 0 and 1 only; for several multi-class "
                "targets use sklearn.multioutput.MultiOutputClassifier"
            )
        if indicator:
            return y, None, np.where(y == 1, 1.0, -1.0)
        y = column_or_1d(y, warn=True)
        return y, *np.unique(y, return_inverse=True)

    def _encode(
        self, classes: NDArray | None, shape: tuple[int, ...]
    ) -> tuple[Floats | None, int, dict[str, Any]]:
        """Class codes, or numbers, which are a label indicator."""
        if classes is None:
            m = 1 if len(shape) == 1 else shape[1]
            return None, m, {"classes_": np.arange(m), "_multilabel": True}
        m = len(classes)
        if m < 2:
            raise ValueError(
                "y must have at least 2 classes, not one class only: " + shown(classes[0])
            )
        return np.arange(float(m))[:, None], m, {"classes_": classes, "_multilabel": False}

    def _weights(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Floats | None:
        if isinstance(X, Shards):
            return self._class_weights(X)
        w = super()._weights(X, y, sample_weight)
        if self.class_weight is None:
            return w
        by_class = compute_sample_weight(self.class_weight, y)
        by_class = as_weights(by_class, "class_weight", len(by_class))
        both = by_class if w is None else w * by_class
        return as_weights(both, "class_weight, times sample_weight,", len(both), some=True)

    def _class_weights(self, shards: Shards) -> Floats | None:
        """The weights of the classes of shards, all of which must have rows."""
        if self._multilabel:
            if self.class_weight is not None:
                raise ValueError("class_weight must be None for labels in shards; write weights")
            return None
        counts = shards.class_counts()
        for absent in self.classes_[counts == 0].tolist():
            raise ValueError(f"the shards hold no row of class {absent!r}")
        if self.class_weight == "balanced":
            return counts.sum() / (len(counts) * counts)
        if self.class_weight is None:
            return None
        return compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)

    def _model_loss(self) -> Any:
        if not isinstance(self.loss, str):
            self._check_form(self.loss)
            return self.loss
        return named_loss(self.loss, "sign" if self._multilabel else "label")

    def _check_form(self, loss: Any) -> None:
        """Raise unless a loss object is of the form for this kind of y."""
        target = getattr(loss, "target", "label")
        if self._multilabel == (target == "label"):
            kinds = ("1-D", "multi-class"), ("a 2-D label indicator", "binary")
            shape, form = kinds[self._multilabel]
            raise ValueError(
                f"loss {type(loss).__name__} does not suit y, which is {shape} and needs a {form} "
                "loss; a name such as loss='logistic' stands for the form that suits y"
            )

    @property
    def _task(self) -> str:
        return "multilabel" if self._multilabel else "classification"

    def _output_labels(self) -> tuple[str, list[Any]] | None:
        return None if self._multilabel else ("class", self.classes_.tolist())

    def _output_names(self) -> list[str] | None:
        if self._multilabel and self._target_names:
            return self._target_names
        return usable_names(map(str, self.classes_))

    def decision_function(self, X: Any) -> Floats:
        """Outputs of the model.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards

        Returns
        -------
        ndarray
            One column per class or label, (n, m); for two classes the output of the second minus
            that of the first, (n,).
        """
        return self._by_model(PolyModel.decision_function, X)

    def score(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """The share of rows whose class, or all of whose labels, are predicted.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards
        y : array-like, (n,) or (n, m)
            It may be left out with shards, which hold targets and weights.
        sample_weight : array-like, (n,), optional

        Returns
        -------
        float
        """
        return super().score(X, *stored_targets(X, y, sample_weight))


@documented(LOSS, CLASSES, CLASS_WEIGHT)
class PolynomialNetworkClassifier(PolyClassifier):
    """Classification with a polynomial network: squares and products of features.

    The outputs are V's(Hx), with s_r = (h_r'x)^2, plus linear terms: one output per class, or one
    per label where y is a 2-D label indicator. All outputs share the basis vectors h_r. Training
    adds them in blocks, those that violate the optimality condition most, and fits both layers
    together.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    FactorizationMachineClassifier : Products of different features only.
    PathSearchCV : Chooses alpha and the number of basis vectors.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import scale
    >>> from fastpoly import PolynomialNetworkClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = PolynomialNetworkClassifier(alpha=0.1, n_components=8, random_state=0)
    >>> model = model.fit(scale(X), y)
    >>> model.score(scale(X), y) > 0.97
    True
    >>> model.predict_proba(scale(X[:5])).shape
    (5, 3)
    """

    _activation = "squared"


@documented(LOSS, CLASSES, CLASS_WEIGHT)
class FactorizationMachineClassifier(PolyClassifier):
    """Classification with a factorization machine: products of different features.

    The outputs are V's(Hx), with s_r = sum over i < j of h_ri x_i h_rj x_j, plus linear terms: no
    squares, which one-hot features do not need. There is one output per class, or one per label
    where y is a 2-D label indicator. All outputs share the basis vectors h_r. Training adds them
    in blocks, those that violate the optimality condition most, and fits both layers together.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    PolynomialNetworkClassifier : Also has squares.
    PathSearchCV : Chooses alpha and the number of basis vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import FactorizationMachineClassifier
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 4))
    >>> labels = np.column_stack([X[:, 0] * X[:, 1] > 0, X[:, 2] > 0]).astype(int)
    >>> model = FactorizationMachineClassifier(alpha=0.5, n_components=8, random_state=0)
    >>> model = model.fit(X, labels)
    >>> model.score(X, labels) > 0.9
    True
    """

    _activation = "anova"
