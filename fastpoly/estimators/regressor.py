"""Regression with one or several outputs."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import Tags
from sklearn.utils.metaestimators import available_if

from fastpoly.decoding import NUMBERS
from fastpoly.estimators.base import PolyEstimator, with_shared_parameters
from fastpoly.estimators.data import TrainingRows, explained_text, stored_targets
from fastpoly.estimators.documentation import documented
from fastpoly.kernels.losses import complete_loss, get_loss
from fastpoly.model import PolyModel
from fastpoly.problem import named_loss
from fastpoly.rows.statistics import Moments, Scaling

Floats = NDArray[np.float64]

LOSS = """
loss : {"squared", "huber", "poisson"} or loss object, default="squared"
    Summed over outputs and rows. "squared": 1/2 (o - y)^2. "huber": the same up to a distance of 1,
    then linear, for targets with outliers; with `standardize`, distances are in units of the median
    absolute deviation of the targets, times 1.48. `fastpoly.kernels.losses.Huber(width)` has
    another width. "poisson": exp(o) - y o, for counts and rates y >= 0; `predict` gives exp(o)."""


def _has_columns(estimator: "PolyRegressor") -> bool:
    # scikit-learn forbids the method for regressors of a 1-D y, and asks before `fit`.
    if getattr(estimator, "_one_dimensional", True):
        raise AttributeError("only after a fit with a 2-D y; `predict` gives the output of a 1-D y")
    return True


class PolyRegressor(RegressorMixin, PolyEstimator):
    """Base of the two regressors: y (n,) or (n, m)."""

    _numeric_targets = True

    @property
    def _task(self) -> str:
        return "rates" if getattr(self, "_link", None) == "log" else "regression"

    @with_shared_parameters
    def __init__(self, *, loss: Any = "squared", **shared: Any) -> None:
        super().__init__(loss=loss, **shared)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _split_targets(self, y: NDArray) -> tuple[NDArray, None, Floats]:
        with explained_text(y, numeric=True):
            return y, None, np.asarray(y, dtype=np.float64).reshape(len(y), -1)

    def _encode(
        self, classes: NDArray | None, shape: tuple[int, ...]
    ) -> tuple[Floats | None, int, dict[str, Any]]:
        """Numbers, or the classes of shards, if they are numbers."""
        if classes is not None and classes.dtype.kind not in NUMBERS:
            raise ValueError(
                f"the targets of the shards are not numbers: {classes[:3].tolist()}; "
                "use a classifier"
            )
        table = None if classes is None else classes.astype(np.float64)[:, None]
        m = 1 if len(shape) == 1 else shape[1]
        link = complete_loss(get_loss(self._model_loss())).link
        return table, m, {"_one_dimensional": len(shape) == 1, "_link": link}

    def _units(self, data: TrainingRows) -> Scaling:
        scaling, loss = super()._units(data), complete_loss(get_loss(self._model_loss()))
        # Other losses depend on the scale of the targets.
        if not self.standardize or not (loss.equivariant or loss.robust):
            return scaling
        found = data.target_moments
        if loss.robust and not data.stored:  # shards have no medians
            found = Moments.robust(data.targets.values, data.w)
        return scaling.with_targets(found, self.fit_lower == "explicit")

    def _model_loss(self) -> Any:
        return named_loss(self.loss, "real") if isinstance(self.loss, str) else self.loss

    def _output_names(self) -> list[str] | None:
        return None if self._one_dimensional else self._target_names

    @available_if(_has_columns)
    def decision_function(self, X: Any) -> Floats:
        """Outputs of the model: `predict`, or its logarithm for rates. Only if y was 2-D.

        Parameters
        ----------
        X : array-like, DataFrame or sparse, (n, d), or Shards

        Returns
        -------
        ndarray, (n, m)
        """
        return self._by_model(PolyModel.decision_function, X)

    def _shape(self, values: NDArray) -> NDArray:
        return values if self._one_dimensional else values.reshape(len(values), -1)

    def score(
        self, X: Any, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Coefficient of determination R^2, the mean over outputs.

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


@documented(LOSS)
class PolynomialNetworkRegressor(PolyRegressor):
    """Regression with a polynomial network: squares and products of features.

    The outputs are V's(Hx), with s_r = (h_r'x)^2, plus linear terms. All outputs share the basis
    vectors h_r. Training adds them in blocks, those that violate the optimality condition most, and
    fits both layers together.

    Parameters
    ----------
    {parameters}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    FactorizationMachineRegressor : Products of different features only.
    PathSearchCV : Chooses alpha and the number of basis vectors.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import PolynomialNetworkRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> y = X[:, 0] * X[:, 1] - X[:, 2] ** 2
    >>> model = PolynomialNetworkRegressor(alpha=0.1, n_components=8, random_state=0)
    >>> model = model.fit(X, y)
    >>> model.score(X, y) > 0.98
    True
    >>> [(i, j, round(float(c), 1)) for i, j, c in model.top_interactions(k=1, standardized=False)]
    [(0, 1, 1.0)]
    """

    _activation = "squared"


@documented(LOSS)
class FactorizationMachineRegressor(PolyRegressor):
    """Regression with a factorization machine: products of different features.

    The outputs are V's(Hx), with s_r = sum over i < j of h_ri x_i h_rj x_j, plus linear terms: no
    squares, which one-hot features do not need. All outputs share the basis vectors h_r. Training
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
    PolynomialNetworkRegressor : Also has squares.
    FactorizationMachineOrdinalRegressor : Ratings on a scale of few levels.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import FactorizationMachineRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> Y = np.column_stack([X[:, 0] * X[:, 1], X[:, 2] - X[:, 0] * X[:, 1]])
    >>> model = FactorizationMachineRegressor(alpha=0.1, n_components=8, random_state=0)
    >>> model = model.fit(X, Y)
    >>> model.predict(X).shape, model.output_weights_.shape[1]
    ((200, 2), 2)
    >>> model.score(X, Y) > 0.98
    True
    """

    _activation = "anova"
