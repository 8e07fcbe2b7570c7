"""The interactions of features in a model."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fastpoly.interactions import same_field, strongest_features
from fastpoly.kernels.checks import as_count
from fastpoly.model import PolyModel
from fastpoly.plotting.training import get_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The word for an output in a title, by the task of its model.
KINDS = {
    "classification": "class",
    "multilabel": "label",
    "ordinal": "level",
    "regression": "output",
}


class InteractionDisplay:
    """Heat map of the interactions of features in one output.

    Parameters
    ----------
    matrix : array-like, (d, d)
        The symmetric C of the output x'Cx, as returned by `interaction_matrix`.
    feature_names : sequence of d str, optional
    title : str, optional
    label : str
        What the colors mean.

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the last plot.
    image_ : matplotlib AxesImage

    Examples
    --------
    >>> from fastpoly.plotting import InteractionDisplay
    >>> display = InteractionDisplay([[0.0, 2.0], [2.0, -1.0]], ["age", "income"])
    >>> display.plot().image_.get_clim()
    (-2.0, 2.0)
    """

    def __init__(
        self,
        matrix: ArrayLike,
        feature_names: Any = None,
        *,
        title: str | None = None,
        label: str = "C in x'Cx",
    ) -> None:
        self.matrix = np.asarray(matrix, dtype=float)
        d = len(self.matrix)
        if self.matrix.shape != (d, d) or d == 0:
            raise ValueError(f"matrix must be square, got shape {self.matrix.shape}")
        names = map(str, range(d)) if feature_names is None else map(str, feature_names)
        self.feature_names = list(names)
        if len(self.feature_names) != d:
            raise ValueError(f"feature_names must have {d} entries, got {len(self.feature_names)}")
        self.title = title
        self.label = label

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        output: Any = None,
        *,
        max_features: int = 30,
        standardized: bool = True,
        ax: "Axes | None" = None,
        **options: Any,
    ) -> Self:
        """Plot the interactions in one output of a fitted estimator, or of a PolyModel.

        Parameters
        ----------
        estimator : estimator or PolyModel
            One of the six estimators, a search or a Pipeline that ends with one, fitted. For a
            search, the best estimator is shown.
        output : class, level, name or position
            As in `interaction_matrix` of the estimator; for a PolyModel, the name or the position.
        max_features : int
            If there are more features, only those with the largest interactions are shown.
        standardized : bool
            Whether coefficients refer to features in units of their deviation, so that they can be
            compared, or to the features as they are, as where a PolyModel has no background.
        ax : matplotlib Axes, optional
        **options
            Passed on to matplotlib's `imshow`.

        Returns
        -------
        InteractionDisplay
        """
        max_features = as_count(max_features, "max_features")
        model = estimator
        if not isinstance(model, PolyModel):
            from fastpoly.estimators.search import fitted_estimator

            fitted, _ = fitted_estimator(estimator)
            output, model = fitted._output_position(output), fitted.model_
        elif output is None:
            if model.n_outputs > 1:
                raise ValueError(f"say which output: a position below {model.n_outputs} or a name")
            output = 0
        standardized = standardized and model.background is not None
        label = "C in x'Cx" + ", standardized" * standardized
        terms, c, fields = model.terms(standardized), model._output(output), model.fields
        v, squares = terms.V[:, c], not terms.anova
        shown = strongest_features(terms.F, v, max_features, squares=squares, fields=fields)
        names = model.feature_names or range(model.n_features)
        matrix = terms._replace(F=terms.F[:, shown]).matrix(c)
        if fields is not None:
            own = same_field(fields[shown], fields[shown])
            matrix[own & ~np.eye(len(shown), dtype=bool)] = 0
        display = cls(matrix, [names[i] for i in shown], title=_title(model, output), label=label)
        return display.plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        ax = get_axes(ax, figsize=(7, 6))
        largest = np.abs(self.matrix).max() or 1.0
        limits = {} if "norm" in options else {"vmin": -largest, "vmax": largest}
        style = {"cmap": "RdBu_r", **limits, **options}
        self.image_ = ax.imshow(self.matrix, **style)
        if not self.matrix.any():
            sentence = "there are no interactions:\nthis output is linear"
            ax.text(0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center")
        ax.figure.colorbar(self.image_, ax=ax, label=self.label)
        ticks = np.arange(len(self.feature_names))
        size = "small" if len(ticks) <= 15 else "x-small"
        ax.set_xticks(ticks, self.feature_names, rotation=90, fontsize=size)
        ax.set_yticks(ticks, self.feature_names, fontsize=size)
        if self.title:
            ax.set_title(self.title)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _title(model: PolyModel, output: int | str) -> str:
    """The title of a plot, such as "class setosa"."""
    position = model._output(output)
    kind = KINDS.get(model.task, "output")
    if model.output_names:
        return f"{kind} {model.output_names[position]}"
    return "interactions" if model.n_outputs == 1 else f"{kind} {position}"
