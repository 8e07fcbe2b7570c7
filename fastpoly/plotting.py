"""Pictures of searches, of training and of models. Needs the extra `plot` (matplotlib).

The displays follow scikit-learn: `from_estimator` takes what it needs from a fitted object and
plots it, `plot` draws the same again elsewhere, and the display keeps `ax_` and `figure_`.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.interactions import strongest_features
from fastpoly.kernels.checks import as_count
from fastpoly.model import PolyModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]


def _axes(ax: "Axes | None", **size: Any) -> "Axes":
    """The axes given, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib; install it with: pip install "fastpoly[plot]"'
        ) from error
    return plt.subplots(layout="constrained", **size)[1] if ax is None else ax


class PathDisplay:
    """Validation score against the number of basis vectors, a line an alpha.

    Parameters
    ----------
    alphas : array-like, (a,)
    n_components : array-like, (k,)
    mean : array-like, (a, k)
        Scores.
    std : array-like, (a, k), optional
        Their standard deviations over the splits, shown as bands.
    best : tuple (alpha, n_components), optional
        A point to mark.
    score_name : str

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the last plot.
    lines_ : list of matplotlib Line2D

    Examples
    --------
    >>> from fastpoly.plotting import PathDisplay
    >>> display = PathDisplay([1.0, 0.1], [1, 2, 3], [[0.5, 0.6, 0.6], [0.5, 0.7, 0.8]])
    >>> display.plot().ax_.get_xlabel()
    'number of basis vectors'
    """

    def __init__(
        self,
        alphas: ArrayLike,
        n_components: ArrayLike,
        mean: ArrayLike,
        std: ArrayLike | None = None,
        *,
        best: tuple[float, int] | None = None,
        score_name: str = "validation score",
    ) -> None:
        self.alphas = np.asarray(alphas, dtype=float)
        self.n_components = np.asarray(n_components)
        shape = len(self.alphas), len(self.n_components)
        self.mean = np.asarray(mean, dtype=float)
        self.std = None if std is None else np.asarray(std, dtype=float)
        if self.mean.shape != shape or (self.std is not None and self.std.shape != shape):
            raise ValueError(f"mean and std must have shape {shape}, one row an alpha")
        self.best = best
        self.score_name = score_name

    @classmethod
    def from_estimator(cls, search: Any, *, ax: "Axes | None" = None, **options: Any) -> Self:
        """Plot the table of a fitted `PathSearchCV`.

        Parameters
        ----------
        search : PathSearchCV
        ax : matplotlib Axes, optional
        **options
            Passed on to matplotlib's `plot`.

        Returns
        -------
        PathDisplay
        """
        from fastpoly.estimators.search import fitted_search

        search = fitted_search(search)
        table = search.cv_results_
        shape = len(search.alphas_), -1
        scoring = search.scoring if isinstance(search.scoring, str) else "score"
        display = cls(
            search.alphas_,
            np.asarray(table["param_n_components"]).reshape(shape)[0],
            table["mean_test_score"].reshape(shape),
            table["std_test_score"].reshape(shape) if search.n_splits_ > 1 else None,
            best=(search.best_params_["alpha"], search.best_params_["n_components"]),
            score_name=f"validation {scoring.replace('_', ' ')}",
        )
        return display.plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        # Beside axes of its own there is room for the legend; beside those of others there is not.
        place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if ax is None else {}
        ax = _axes(ax)
        import matplotlib as mpl

        options = mpl.cbook.normalize_kwargs(options, mpl.lines.Line2D)  # "c" is "color"
        colors = mpl.colormaps["viridis"](np.linspace(0.9, 0.0, len(self.alphas)))
        self.lines_ = []
        for row, (alpha, color) in enumerate(zip(self.alphas, colors, strict=True)):
            style = {"color": color, "label": f"{alpha:.3g}", **options}
            self.lines_ += ax.plot(self.n_components, self.mean[row], **style)
            if self.std is not None:
                low, high = self.mean[row] - self.std[row], self.mean[row] + self.std[row]
                ax.fill_between(
                    self.n_components, low, high, color=style["color"], alpha=0.08, linewidth=0
                )
        if self.best is not None:
            row = int(np.abs(self.alphas - self.best[0]).argmin())
            column = int(np.abs(self.n_components - self.best[1]).argmin())
            ax.plot(
                self.n_components[column], self.mean[row, column], "o", markersize=9,
                markerfacecolor="none", markeredgecolor="black", label="best",
            )  # fmt: skip
        ax.set_xlabel("number of basis vectors")
        ax.set_ylabel(self.score_name)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend(title="alpha", fontsize="small", **place)
        self.ax_, self.figure_ = ax, ax.figure
        return self


class ConvergenceDisplay:
    """Objective and optimality after each step of training.

    Parameters
    ----------
    history : dict of arrays
        "objective" and "violation", as in the `history_` of an estimator; "gap" in place of
        the violation for the constrained form.
    alpha : float, optional
        The level at which the violation is optimal.
    tau : float, optional
        Constrained form: the bound of the gap is shown.

    Attributes
    ----------
    ax_ : ndarray of 2 matplotlib Axes
    figure_ : matplotlib Figure

    Examples
    --------
    >>> from fastpoly.plotting import ConvergenceDisplay
    >>> history = {"objective": [9.0, 2.0, 1.5], "violation": [4.0, 2.0, 1.0]}
    >>> len(ConvergenceDisplay(history, alpha=1.0).plot().ax_)
    2
    """

    def __init__(
        self, history: dict[str, ArrayLike], *, alpha: float | None = None, tau: float | None = None
    ) -> None:
        self.history = history
        self.alpha = alpha
        self.tau = tau

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **options: Any) -> Self:
        """Plot the `history_` of a fitted estimator.

        Parameters
        ----------
        estimator : one of the six estimators or PathSearchCV, fitted
            Of a search the best estimator is shown.
        ax : sequence of 2 matplotlib Axes, optional
        **options
            Passed on to matplotlib's `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        from fastpoly.estimators.search import fitted_estimator

        estimator = fitted_estimator(estimator)
        alpha = estimator.alpha if estimator.tau is None else None
        return cls(estimator.history_, alpha=alpha, tau=estimator.tau).plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        axes = _axes(None, ncols=2, figsize=(9, 3.6)) if ax is None else np.asarray(ax, object)
        if np.shape(axes) != (2,):
            raise ValueError("ax must be a sequence of 2 axes: for the objective and the violation")
        measure = "violation" if self.tau is None else "gap"
        steps = np.arange(len(self.history["objective"]))
        for each, name in zip(axes, ("objective", measure), strict=True):
            values = np.asarray(self.history[name], dtype=float)
            each.plot(steps, values, **options)
            if (values > 0).any():
                each.set_yscale("log")
            each.set_xlabel("step")
            each.xaxis.get_major_locator().set_params(integer=True)
        axes[0].set_ylabel("objective")
        axes[1].set_ylabel("largest violation found" if self.tau is None else "bound of the gap")
        if self.alpha:
            axes[1].axhline(
                self.alpha, color="0.4", linestyle="--", linewidth=1,
                label=f"optimal: alpha = {self.alpha:.3g}",
            )  # fmt: skip
            axes[1].legend()
        self.ax_, self.figure_ = axes, axes[0].figure
        return self


class InteractionDisplay:
    """Heat map of the interactions of features in one output.

    Parameters
    ----------
    matrix : array-like, (d, d)
        Symmetric: output = x'Cx, as `interaction_matrix` gives it.
    feature_names : sequence of d str, optional
    title : str, optional

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
        self, matrix: ArrayLike, feature_names: Any = None, *, title: str | None = None
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

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        output: int | str = 0,
        *,
        max_features: int = 30,
        ax: "Axes | None" = None,
        **options: Any,
    ) -> Self:
        """Plot the interactions in one output of a fitted estimator, or of a PolyModel.

        Parameters
        ----------
        estimator : one of the six estimators or PathSearchCV, fitted, or PolyModel
            Of a search the best estimator is shown.
        output : int or str
            Position or name of the output.
        max_features : int
            With more features than that, those with the largest interactions are shown.
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

            model = fitted_estimator(estimator).model_
        F, v, _ = model._factors(output)
        shown = strongest_features(F, v, max_features, squares=model.activation == "squared")
        names = model.feature_names or range(model.n_features)
        title = f"output {output}"
        if isinstance(output, (int, np.integer)) and model.output_names:
            title = f"output {model.output_names[output]}"
        matrix = _restricted(model, shown).interaction_matrix(output)
        display = cls(matrix, [names[i] for i in shown], title=title)
        return display.plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        ax = _axes(ax, figsize=(7, 6))
        largest = np.abs(self.matrix).max() or 1.0
        limits = {} if "norm" in options else {"vmin": -largest, "vmax": largest}
        style = {"cmap": "RdBu_r", **limits, **options}
        self.image_ = ax.imshow(self.matrix, **style)
        ax.figure.colorbar(self.image_, ax=ax, label="coefficient in x'Cx")
        ticks = np.arange(len(self.feature_names))
        size = "small" if len(ticks) <= 15 else "x-small"
        ax.set_xticks(ticks, self.feature_names, rotation=90, fontsize=size)
        ax.set_yticks(ticks, self.feature_names, fontsize=size)
        if self.title:
            ax.set_title(self.title)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _restricted(model: PolyModel, shown: NDArray[np.intp]) -> PolyModel:
    """The model on some of its features only."""
    columns = np.append(0, shown + 1) if model.augment else shown
    linear = None if model.linear is None else model.linear[:, shown]
    return replace(model, H=model.H[:, columns], linear=linear, feature_names=None)
