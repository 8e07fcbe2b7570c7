"""Ordinal regression by reduction to binary outputs: is the level at most c, for every c?"""

import numbers
from decimal import Decimal
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import type_of_target
from sklearn.utils.validation import column_or_1d

from fastpoly.estimators.base import PolyEstimator
from fastpoly.estimators.documentation import documented
from fastpoly.estimators.splitting import level_strata

Floats = NDArray[np.float64]

LOSS = """
loss : {"logistic"} or loss object, default="logistic"
    Binary logistic loss of the m - 1 questions whether y is at most a level. The outputs of a loss
    object, whose target must be "sign", are taken as log odds too."""

CLASSES = """
classes_ : ndarray, (m,)
    The levels, sorted; those of an ordered categorical (pandas) or an Enum (polars) in its order.
"""


def level_probabilities(O: Floats) -> Floats:
    """p(y = level) from the m - 1 outputs whose sigmoids are p(y <= level).

    Where these cross they are made monotone, half from below and half from above, so that the
    differences are not negative; they add up to 1.
    """
    cumulative = expit(O)
    rising = np.maximum.accumulate(cumulative, axis=1)
    falling = np.minimum.accumulate(cumulative[:, ::-1], axis=1)[:, ::-1]
    cumulative = (rising + falling) / 2
    ends = np.zeros((len(O), 1)), np.ones((len(O), 1))
    return np.diff(np.hstack([ends[0], cumulative, ends[1]]), axis=1)


def declared_order(y: Any) -> list[Any] | None:
    """The levels of an ordered categorical of pandas or an Enum of polars, in its order."""
    dtype = getattr(y, "dtype", None)
    if getattr(dtype, "ordered", False) or type(dtype).__name__ == "Enum":
        return list(dtype.categories)
    return None


def as_numbers(y: NDArray) -> NDArray:
    """An array of objects that are all numbers (int, float, Decimal, Fraction) as numbers."""
    if y.dtype.kind != "O" or not all(
        isinstance(v, (numbers.Real, Decimal)) and not isinstance(v, bool) for v in y
    ):
        return y
    plain = np.array(y.tolist())
    return plain if plain.dtype.kind in "iuf" else y.astype(np.float64)


def _has_levels(estimator: "PolyOrdinalRegressor") -> bool:
    if not getattr(estimator, "_graded", True):
        raise AttributeError(
            "y was continuous and no value of it occurred twice: there are no levels to give "
            "probabilities of; use `predict`, or round y to a scale of few levels"
        )
    return True


class PolyOrdinalRegressor(RegressorMixin, PolyEstimator):
    """Base of the two ordinal regressors: outputs are the log odds of y <= level."""

    _declared: list[Any] | None = None

    def _prepare(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, reset: bool = True
    ) -> tuple[Any, Any, NDArray, int, Floats | None]:
        self._declared = declared_order(y)  # before y becomes an array
        return super()._prepare(X, y, sample_weight, reset)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.classifier_tags = ClassifierTags()  # a regressor that has `predict_proba`, too
        return tags

    def _encode_targets(self, y: Any) -> tuple[NDArray, Floats, int, dict[str, Any]]:
        y = column_or_1d(y, warn=True)
        levels, codes = np.unique(y, return_inverse=True)
        if self._declared is not None:
            order = np.argsort([self._declared.index(level) for level in levels])
            levels, codes = levels[order], np.argsort(order)[codes]
        y, levels = as_numbers(y), as_numbers(levels)
        if len(levels) < 2:
            raise ValueError(f"y must have at least 2 levels, not one class only: {levels[0]!r}")
        signs = np.where(codes[:, None] <= np.arange(len(levels) - 1), 1.0, -1.0)
        graded = len(levels) < len(y) or type_of_target(y) != "continuous"
        return y, signs, len(levels) - 1, {"classes_": levels, "_graded": graded}

    def _strata(self, y: Any, share: float) -> Any:
        order = np.argsort(self.classes_)  # a declared order may differ from that of np.unique
        return level_strata(order[np.unique(y, return_inverse=True)[1]], share)

    def _model_loss(self) -> Any:
        if isinstance(self.loss, str) and self.loss != "logistic":
            raise ValueError(f"unknown loss {self.loss!r}; known: 'logistic'")
        if isinstance(self.loss, str):
            return "binary_logistic"
        if getattr(self.loss, "target", "sign") != "sign":
            raise ValueError(
                f"loss {type(self.loss).__name__} does not suit levels, which need a binary loss "
                "(target 'sign'); use loss='logistic'"
            )
        return self.loss

    def _output_names(self) -> list[str] | None:
        names = [f"<= {level}" for level in self.classes_[:-1]]
        return None if any("\0" in name for name in names) else names

    def _values(self) -> Floats:
        """The levels as numbers: themselves, or their ranks 1..m where they are not numbers."""
        if self.classes_.dtype.kind in "iuf":
            return self.classes_.astype(np.float64)
        return np.arange(1.0, len(self.classes_) + 1)

    def _predict(self, O: Floats) -> Floats:
        return level_probabilities(O) @ self._values()

    def _decide(self, O: Floats) -> Floats:
        return O

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Coefficient of determination R^2 of the expected level.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)
        y : array-like, (n,)
            Levels; those that are not numbers count by their rank 1..m.
        sample_weight : array-like, (n,), optional

        Returns
        -------
        float
        """
        prediction = self.predict(X)
        y = as_numbers(column_or_1d(y))
        if self.classes_.dtype.kind not in "iuf":
            known = np.isin(y, self.classes_)
            if not known.all():
                raise ValueError(f"y has levels that `fit` did not see: {np.unique(y[~known])}")
            y = 1.0 + (y[:, None] == self.classes_).argmax(axis=1)
        return r2_score(y, prediction, sample_weight=sample_weight)

    @available_if(_has_levels)
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities of the levels.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)

        Returns
        -------
        ndarray, (n, len(classes_))
            Not negative, rows sum to 1.
        """
        return level_probabilities(self._outputs(X))

    @available_if(_has_levels)
    def decision_function(self, X: Any) -> Floats:
        """Log odds of y <= level for all levels but the last.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d)

        Returns
        -------
        ndarray, (n, len(classes_) - 1)
        """
        return self._outputs(X)


@documented(LOSS, CLASSES)
class PolynomialNetworkOrdinalRegressor(PolyOrdinalRegressor):
    """Regression on ordered levels with a polynomial network: squares and products of features.

    For m levels there are m - 1 outputs V's(Hx), s_r = (h_r'x)^2: the log odds that y is at most
    the level. Any labels that can be sorted are levels; numbers need not be equally spaced.

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
    numbers the expected rank, from 1. ``classes_[predict_proba(X).argmax(axis=1)]`` is the most
    probable level.

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


@documented(LOSS, CLASSES)
class FactorizationMachineOrdinalRegressor(PolyOrdinalRegressor):
    """Regression on ordered levels with a factorization machine: ratings of items by users.

    For m levels there are m - 1 outputs V's(Hx), s_r = sum over i < j of h_ri x_i h_rj x_j: the
    log odds that y is at most the level. Any labels that can be sorted are levels; numbers need
    not be equally spaced.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    PolynomialNetworkOrdinalRegressor : Squares, too.
    FactorizationMachineRegressor : Targets that are not levels.

    Notes
    -----
    `predict` returns the expected level, a number between the levels; for labels that are not
    numbers the expected rank, from 1. ``classes_[predict_proba(X).argmax(axis=1)]`` is the most
    probable level.

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
