"""What targets mean: classes and labels, numbers, ordered levels.

Each class turns y into codes with a table of what a code is to the loss, or into numbers.
"""

import numbers
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.metrics import accuracy_score, r2_score
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.class_weight import compute_class_weight, compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import column_or_1d

from fastpoly.decoding import NUMBER_KINDS, level_values
from fastpoly.estimators.advice import warn
from fastpoly.estimators.base import Encoded, PolyEstimator, with_parameters
from fastpoly.estimators.data import TrainingRows, usable_names
from fastpoly.kernels.checks import as_weights, shown
from fastpoly.rows import Shards
from fastpoly.rows.statistics import Moments, Scaling
from fastpoly.state import Floats


@with_parameters(class_weight=None)
class PolyClassifier(ClassifierMixin, PolyEstimator):
    """Base of the two classifiers: one output per class, or one per label of a 2-D indicator y."""

    _task = "classification"  # or "multilabel"
    score = PolyEstimator.score  # before that of the mixin

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

    def _encode(self, classes: NDArray | None, shape: tuple[int, ...]) -> Encoded:
        if classes is None:
            m = 1 if len(shape) == 1 else shape[1]
            return None, m, {"classes_": np.arange(m), "_task": "multilabel"}
        m = len(classes)
        if m < 2:
            raise ValueError(
                "y must have at least 2 classes, not one class only: " + shown(classes[0])
            )
        return np.arange(float(m))[:, None], m, {"classes_": classes, "_task": "classification"}

    def _weights(self, X: Any, y: Any, sample_weight: ArrayLike | None) -> Floats | None:
        if isinstance(X, Shards):
            return self._class_weights(X)
        w = super()._weights(X, y, sample_weight)
        if self.class_weight is None:
            return w
        by_class = as_weights(compute_sample_weight(self.class_weight, y), "class_weight", len(y))
        both = by_class if w is None else w * by_class
        return as_weights(both, "class_weight, times sample_weight,", len(both), some=True)

    def _metric(self, y: ArrayLike, prediction: NDArray, w: ArrayLike | None) -> float:
        return accuracy_score(y, prediction, sample_weight=w)

    def _class_weights(self, shards: Shards) -> Floats | None:
        """The weights of the classes of shards, all of which must have rows."""
        if self._task == "multilabel":
            if self.class_weight is not None:
                raise ValueError("class_weight must be None for labels in shards; write weights")
            return None
        counts = shards.class_counts()
        for absent in self.classes_[counts == 0].tolist():
            raise ValueError(f"the shards hold no row of class {absent!r}")
        if self.class_weight is None:
            return None
        if self.class_weight == "balanced":
            return counts.sum() / (len(counts) * counts)
        return compute_class_weight(self.class_weight, classes=self.classes_, y=self.classes_)

    def _output_names(self) -> list[str] | None:
        names = self._target_names if self._task == "multilabel" else None
        return names or usable_names(map(str, self.classes_))


@with_parameters(loss="squared")
class PolyRegressor(RegressorMixin, PolyEstimator):
    """Base of the two regressors: y (n,) or (n, m)."""

    _task = "regression"  # or "rates"
    _numeric_targets = True
    score = PolyEstimator.score

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _split_targets(self, y: NDArray) -> tuple[NDArray, None, Floats]:
        if y.dtype.kind in "mM":
            raise ValueError("y holds dates or times; make numbers of them, such as days")
        return y, None, np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    def _encode(self, classes: NDArray | None, shape: tuple[int, ...]) -> Encoded:
        """Numbers, or the classes of shards, if they are numbers."""
        if classes is not None and classes.dtype.kind not in NUMBER_KINDS:
            raise ValueError(
                f"the targets of the shards are not numbers: {classes[:3].tolist()}; "
                "use a classifier"
            )
        table = None if classes is None else classes.astype(np.float64)[:, None]
        m = 1 if len(shape) == 1 else shape[1]
        task = "rates" if self._model_loss().link == "log" else "regression"
        return table, m, {"_one_dimensional": len(shape) == 1, "_task": task}

    def _units(self, data: TrainingRows) -> Scaling:
        scaling, loss = super()._units(data), self._model_loss()
        if not self.standardize or not (loss.equivariant or loss.robust):
            return scaling  # other losses depend on the scale of the targets
        if data.stored:  # which have no medians
            found = data.statistics.targets
        else:
            found = (Moments.robust if loss.robust else Moments.of)(data.targets.values, data.w)
        return scaling.with_targets(found, self.fit_lower == "explicit")

    def _output_names(self) -> list[str] | None:
        return None if self._one_dimensional else self._target_names

    def _metric(self, y: ArrayLike, prediction: Floats, w: ArrayLike | None) -> float:
        return r2_score(y, prediction, sample_weight=w)


@with_parameters(levels=None)
class PolyOrdinalRegressor(RegressorMixin, PolyEstimator):
    """Base of the two ordinal regressors, by reduction: is y <= level, for all but the last?"""

    _task = "ordinal"
    _declared: list[Any] | None = None
    score = PolyEstimator.score

    def _prepare(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool = True
    ) -> TrainingRows:
        # This comes before y becomes an array.
        self._declared = order_of_dtype(y) if self.levels is None else as_levels(self.levels)
        return super()._prepare(X, y, sample_weight, reset)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags()  # a regressor that also has `predict_proba`
        return tags

    def _split_targets(self, y: Any) -> tuple[NDArray, NDArray, NDArray]:
        y = as_numbers(column_or_1d(y, warn=True))
        try:
            levels, codes = np.unique(y, return_inverse=True)
        except TypeError:
            raise ValueError(
                "y must not mix numbers, strings and None; drop or fill rows"
            ) from None
        if self._declared is not None:  # rows are held out in this order
            order = np.argsort(self._positions(levels))
            levels, codes = levels[order], np.argsort(order)[codes]
        return y, levels, codes

    def _encode(self, classes: NDArray | None, shape: tuple[int, ...]) -> Encoded:
        """The signs of y <= level for every level that occurs."""
        if classes is None:
            raise ValueError("the targets of the shards are arbitrary numbers, not levels")
        if self._declared is not None:
            rank = np.argsort(np.argsort(self._positions(classes)))
        elif classes.dtype.kind in NUMBER_KINDS:
            rank = np.arange(len(classes))
        else:
            raise ValueError(
                f"the order of the levels {classes[:5].tolist()} is not known: give "
                "levels=[lowest, ..., highest], or an ordered pandas Categorical as y"
            )
        n, m = shape[0], len(classes)
        if m < 2:
            raise ValueError(
                "y must have at least 2 levels, not one class only: " + shown(classes[0])
            )
        if n < 2 * m:
            warn(
                f"y has {m} levels in {n} rows, and the model has an output for each of them: the "
                "fit is slow; use a regressor, or a scale of fewer levels"
            )
        graded = m < n or type_of_target(classes) != "continuous"
        signs = np.where(rank[:, None] <= np.arange(m - 1), 1.0, -1.0)
        return signs, m - 1, {"classes_": classes[np.argsort(rank)], "_has_levels": graded}

    def _positions(self, levels: NDArray) -> list[int]:
        """The positions of levels in the declared order."""
        known = {level: i for i, level in enumerate(self._declared)}
        missing = [level for level in levels.tolist() if level not in known]
        if missing:
            raise ValueError(
                f"y holds {missing[0]!r}, which is not one of levels={shown(self._declared)}"
            )
        return [known[level] for level in levels.tolist()]

    def _output_names(self) -> list[str] | None:
        return usable_names(f"<= {level}" for level in self.classes_[:-1])

    def _numbers(self, levels: NDArray) -> Floats:
        """Levels as numbers: themselves, or their ranks among all declared levels, from 1."""
        if self.classes_.dtype.kind in NUMBER_KINDS:
            return levels.astype(np.float64)
        return 1.0 + np.array(self._positions(levels))

    def _level_values(self) -> Floats | None:
        values = self._numbers(self.classes_)
        known = level_values(self.classes_, len(values))
        return None if np.array_equal(values, known) else values

    def _metric(self, y: ArrayLike, prediction: Floats, w: ArrayLike | None) -> float:
        y = self._numbers(as_numbers(column_or_1d(y)))
        return r2_score(y, prediction, sample_weight=w)


def order_of_dtype(y: Any) -> list[Any] | None:
    """The levels of an ordered pandas categorical or a polars Enum, in their order."""
    if hasattr(y, "iloc") and getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
        y = y.iloc[:, 0]
    dtype = getattr(y, "dtype", None)
    if getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum":
        return list(dtype.categories)
    return None


def as_levels(levels: ArrayLike) -> list[Any]:
    """The parameter `levels` as a list: distinct, and rising where they are numbers."""
    if isinstance(levels, (str, bytes)) or not np.iterable(levels):
        raise TypeError(f"levels must be a list, the lowest level first, got {levels!r}")
    order = np.asarray(levels).tolist() if hasattr(levels, "dtype") else list(levels)
    if len(set(order)) < len(order) or len(order) < 2:
        raise ValueError(f"levels must be two or more distinct values, got {shown(order)}")
    if all(isinstance(each, numbers.Real) for each in order) and order != sorted(order):
        raise ValueError(f"levels that are numbers must increase, got {shown(order)}; sort them")
    return order


def as_numbers(y: NDArray) -> NDArray:
    """An array of objects that are all numbers (int, float, Decimal, Fraction) as numbers."""
    if y.dtype.kind != "O" or not all(
        isinstance(v, (numbers.Real, Decimal)) and not isinstance(v, bool) for v in y
    ):
        return y
    plain = np.array(y.tolist())
    return plain if plain.dtype.kind in "iuf" else y.astype(np.float64)
