"""Ordinal regression by reduction to binary outputs: for every c, is the level at most c?"""

import numbers
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from fastpoly.decoding import NUMBERS, level_values
from fastpoly.estimators.advice import warn
from fastpoly.estimators.base import PolyEstimator, with_shared_parameters
from fastpoly.estimators.data import TrainingRows, stored_targets, usable_names
from fastpoly.estimators.documentation import documented
from fastpoly.estimators.prediction import WithProbabilities
from fastpoly.kernels.checks import shown
from fastpoly.model import PolyModel
from fastpoly.problem import named_loss

Floats = NDArray[np.float64]

LOSS = """
loss : {"logistic"} or loss object, default="logistic"
    Binary logistic loss of the m - 1 questions whether y is at most a level. The outputs of a loss
    object, whose target must be "sign", are taken as log odds too. It has `predict_proba` if its
    attribute log_odds is True."""

LEVELS = """\
levels : array-like, optional
    The levels, the lowest first. Needed where they are not numbers, unless y is an ordered
    categorical (pandas) or an Enum (polars), whose order is taken.
"""

CLASSES = """
classes_ : ndarray, (m,)
    The levels that occur, the lowest first.
"""


def declared_order(y: Any) -> list[Any] | None:
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
        raise ValueError(f"levels must be two or more distinct values, got {order}")
    if all(isinstance(each, numbers.Real) for each in order) and order != sorted(order):
        raise ValueError(f"levels that are numbers must increase, got {order}; sort them")
    return order


def as_numbers(y: NDArray) -> NDArray:
    """An array of objects that are all numbers (int, float, Decimal, Fraction) as numbers."""
    if y.dtype.kind != "O" or not all(
        isinstance(v, (numbers.Real, Decimal)) and not isinstance(v, bool) for v in y
    ):
        return y
    plain = np.array(y.tolist())
    return plain if plain.dtype.kind in "iuf" else y.astype(np.float64)


def _has_levels(estimator: "PolyOrdinalRegressor") -> bool:
    if not getattr(estimator, "_has_levels", True):
        raise AttributeError(
            "y was continuous and no value of it occurred twice: there are no levels to give "
            "probabilities of; use `predict`, or round y to a scale of few levels"
        )
    return True


class PolyOrdinalRegressor(RegressorMixin, WithProbabilities, PolyEstimator):
    """Base of the two ordinal regressors: outputs are the log odds of y <= level."""

    _task = "ordinal"
    _declared: list[Any] | None = None

    @with_shared_parameters
    def __init__(
        self, *, loss: Any = "logistic", levels: ArrayLike | None = None, **shared: Any
    ) -> None:
        super().__init__(loss=loss, **shared)
        self.levels = levels

    def _prepare(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool = True
    ) -> TrainingRows:
        # This comes before y becomes an array.
        self._declared = declared_order(y) if self.levels is None else as_levels(self.levels)
        return super()._prepare(X, y, sample_weight, reset)

    def _can_have_probabilities(self) -> None:
        _has_levels(self)

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

    def _encode(
        self, classes: NDArray | None, shape: tuple[int, ...]
    ) -> tuple[Floats, int, dict[str, Any]]:
        """The signs of y <= level for every level that occurs."""
        if classes is None:
            raise ValueError("the targets of the shards are arbitrary numbers, not levels")
        if self._declared is not None:
            rank = np.argsort(np.argsort(self._positions(classes)))
        elif classes.dtype.kind in NUMBERS:
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
            raise ValueError(f"y holds {missing[0]!r}, which is not one of levels={self._declared}")
        return [known[level] for level in levels.tolist()]

    def _model_loss(self) -> Any:
        if isinstance(self.loss, str):
            return named_loss(self.loss, "sign")
        if getattr(self.loss, "target", "sign") != "sign":
            raise ValueError(
                f"loss {type(self.loss).__name__} does not suit levels, which need a binary loss "
                "(target 'sign'); use loss='logistic'"
            )
        return self.loss

    def _output_labels(self) -> tuple[str, list[Any]]:
        return "level", self.classes_.tolist()[:-1]

    def _output_names(self) -> list[str] | None:
        return usable_names(f"<= {level}" for level in self.classes_[:-1])

    def _numbers(self, levels: NDArray) -> Floats:
        """Levels as numbers: themselves, or their ranks among the declared levels, from 1.

        So predictions and scores do not depend on which declared levels a training part holds.
        """
        if self.classes_.dtype.kind in NUMBERS:
            return levels.astype(np.float64)
        return 1.0 + np.array(self._positions(levels))

    def _level_values(self) -> Floats | None:
        values = self._numbers(self.classes_)
        known = level_values(self.classes_, len(values))
        return None if np.array_equal(values, known) else values

    def score(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Coefficient of determination R^2 of the expected level.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards
        y : array-like, (n,)
            Levels; for those that are not numbers, their ranks among the declared levels are used.
            It may be left out with shards, which hold targets and weights.
        sample_weight : array-like, (n,), optional

        Returns
        -------
        float
        """
        prediction = self.predict(X)
        y, sample_weight = stored_targets(X, y, sample_weight)
        y = self._numbers(as_numbers(column_or_1d(y)))
        return r2_score(y, prediction, sample_weight=sample_weight)

    @available_if(_has_levels)
    def decision_function(self, X: Any) -> Floats:
        """Log odds of y <= level for all levels but the last.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards

        Returns
        -------
        ndarray, (n, len(classes_) - 1)
        """
        return self._by_model(PolyModel.decision_function, X)


@documented(LOSS, CLASSES, LEVELS)
class PolynomialNetworkOrdinalRegressor(PolyOrdinalRegressor):
    """Regression on ordered levels with a polynomial network: squares and products of features.

    For m levels there are m - 1 outputs, the log odds that y is at most the level: V's(Hx), with
    s_r = (h_r'x)^2, plus linear terms. They share the basis vectors h_r. Numbers are levels in
    their order and need not be equally spaced; give `levels` for labels that are not numbers.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    FactorizationMachineOrdinalRegressor : Products of different features only.
    PolynomialNetworkRegressor : Targets that are not levels.

    Notes
    -----
    `predict` returns the expected level, a number between the levels; for labels that are not
    numbers the expected rank among the declared levels, from 1.
    ``classes_[predict_proba(X).argmax(axis=1)]`` is the most probable level.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import PolynomialNetworkOrdinalRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 4))
    >>> stars = np.clip(np.round(X[:, 0] * X[:, 1] + X[:, 2]) / 2 + 3, 2, 4)
    >>> model = PolynomialNetworkOrdinalRegressor(alpha=1.0, n_components=8, random_state=0)
    >>> model = model.fit(X, stars)
    >>> model.classes_
    array([2. , 2.5, 3. , 3.5, 4. ])
    >>> model.score(X, stars) > 0.8
    True
    """

    _activation = "squared"


@documented(LOSS, CLASSES, LEVELS)
class FactorizationMachineOrdinalRegressor(PolyOrdinalRegressor):
    """Regression on ordered levels with a factorization machine: ratings of items by users.

    For m levels there are m - 1 outputs, the log odds that y is at most the level: V's(Hx), with
    s_r = sum over i < j of h_ri x_i h_rj x_j, plus linear terms. They share the basis vectors h_r.
    Numbers are levels in their order and need not be equally spaced; give `levels` for labels that
    are not numbers.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    PolynomialNetworkOrdinalRegressor : Also has squares.
    FactorizationMachineRegressor : Targets that are not levels.

    Notes
    -----
    `predict` returns the expected level, a number between the levels; for labels that are not
    numbers the expected rank among the declared levels, from 1.
    ``classes_[predict_proba(X).argmax(axis=1)]`` is the most probable level.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import OneHotEncoder
    >>> from fastpoly import FactorizationMachineOrdinalRegressor
    >>> rng = np.random.default_rng(0)
    >>> pairs = rng.integers(0, 20, size=(1000, 2))
    >>> taste, style = rng.choice([-1, 1], size=(2, 20))
    >>> ratings = 3 + taste[pairs[:, 0]] * style[pairs[:, 1]] + rng.integers(-1, 2, size=1000)
    >>> X = OneHotEncoder().fit_transform(pairs)
    >>> model = FactorizationMachineOrdinalRegressor(alpha=0.1, n_components=8, random_state=0)
    >>> model = model.fit(X, ratings)
    >>> model.score(X, ratings) > 0.5
    True
    """

    _activation = "anova"
