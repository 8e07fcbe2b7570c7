"""Pictures of searches, of training and of models. Needs the extra `plot` (matplotlib).

The displays follow scikit-learn: `from_estimator` takes what it needs from a fitted object and
plots it, `plot` draws the same again elsewhere, and the display keeps `ax_` and `figure_`. Fitted
searches and Pipelines are opened. What explains a picture stands beside its axes and hides nothing.
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

# More tick labels than that beside a color bar run into each other.
MOST_TICKS = 15
# Largest over smallest value from which an axis is logarithmic: it then has ticks at powers of ten.
LOG_AXIS = 20.0
# What an output is called, by the task of its model.
KINDS = {
    "classification": "class",
    "multilabel": "label",
    "ordinal": "level",
    "regression": "output",
}


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
    """Validation score against the number of basis vectors, one line per alpha.

    A score belongs to the last model with at most that many basis vectors, so the lines are steps.

    Parameters
    ----------
    alphas : array-like, (a,)
    n_components : array-like, (k,)
    mean : array-like, (a, k)
        Scores.
    std : array-like, (a, k), optional
        Their standard deviations over the splits, shown as a band around the line of the best
        alpha, or around all lines where `best` is not given.
    best : tuple (alpha, n_components), optional
        A point to mark.
    score_name : str

    Attributes
    ----------
    ax_, figure_
        Axes and figure of the last plot.
    lines_ : list of matplotlib Line2D
        One per alpha.

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
            raise ValueError(f"mean and std must have shape {shape}, one row per alpha")
        self.best = best
        self.score_name = score_name

    @classmethod
    def from_estimator(cls, search: Any, *, ax: "Axes | None" = None, **options: Any) -> Self:
        """Plot the table of a fitted `PathSearchCV`.

        Parameters
        ----------
        search : PathSearchCV, or a Pipeline that ends with one, fitted
        ax : matplotlib Axes, optional
        **options
            Passed on to matplotlib's `plot`.

        Returns
        -------
        PathDisplay
        """
        from fastpoly.estimators.fitted import fitted_search
        from fastpoly.estimators.scoring import score_name

        search = fitted_search(search)
        table, shape = search.cv_results_, (len(search.alphas_), -1)
        sizes = np.array([k for _, k in map(dict.values, table["params"])])
        display = cls(
            search.alphas_,
            sizes.reshape(shape)[0],
            table["mean_test_score"].reshape(shape),
            table["std_test_score"].reshape(shape) if search.n_splits_ > 1 else None,
            best=tuple(search.best_params_.values()),
            score_name=f"validation {score_name(search.scoring, search.scorer_)}",
        )
        return display.plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        ax = _axes(ax, figsize=(7.5, 4.8))
        import matplotlib as mpl

        options = mpl.cbook.normalize_kwargs(options, mpl.lines.Line2D)  # "c" is "color"
        colors = mpl.colormaps["viridis"](np.linspace(0.95, 0.0, len(self.alphas)))
        chosen = None if self.best is None else int(np.abs(self.alphas - self.best[0]).argmin())
        self.lines_ = []
        for row, (alpha, color) in enumerate(zip(self.alphas, colors, strict=True)):
            # Equal scores of two alphas are mostly those of one model, found with the larger one.
            style = {"color": color, "label": f"{alpha:.3g}", "zorder": 3 - row / len(colors)}
            style |= {"drawstyle": "steps-post", **options}
            self.lines_ += ax.plot(self.n_components, self.mean[row], **style)
            if self.std is not None and chosen in (None, row):
                low, high = self.mean[row] - self.std[row], self.mean[row] + self.std[row]
                steps = "post" if style["drawstyle"] == "steps-post" else None
                ax.fill_between(
                    self.n_components, low, high, step=steps, color=style["color"], alpha=0.15,
                    linewidth=0, zorder=1,
                )  # fmt: skip
        if chosen is not None:
            column = int(np.abs(self.n_components - self.best[1]).argmin())
            ax.plot(
                self.n_components[column], self.mean[chosen, column], "o", markersize=9,
                markerfacecolor="none", markeredgecolor="black", label="best", zorder=4,
            )  # fmt: skip
            ax.set_title(
                f"best (circle): alpha = {self.alphas[chosen]:.3g}, "
                f"n_components = {self.n_components[column]}",
                fontsize="medium",
            )
        if "color" not in options:
            _color_key(ax, colors, [f"{alpha:.3g}" for alpha in self.alphas])
        ax.set_xlabel("number of basis vectors")
        ax.set_ylabel(self.score_name)
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.set_xlim(self._limits())
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _limits(self) -> tuple[float, float]:
        """All sizes, or those up to the last change of a line, with a margin."""
        sizes, changes = self.n_components, (np.diff(self.mean, axis=1) != 0).any(axis=0)
        last = sizes[1:][changes][-1] if changes.any() else sizes[-1]
        margin = 0.25 * (last - sizes[0]) + 0.5
        return sizes[0] - 0.5, min(sizes[-1] + 0.5, last + margin)


class ConvergenceDisplay:
    """Objective and optimality after each round of training.

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
        estimator : one of the six estimators, a search or a Pipeline that ends with one, fitted
            Of a search the best estimator is shown.
        ax : sequence of 2 matplotlib Axes, optional
        **options
            Passed on to matplotlib's `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        from fastpoly.estimators.fitted import fitted_estimator

        estimator = fitted_estimator(estimator)
        alpha = getattr(estimator, "alpha_", None)
        return cls(estimator.history_, alpha=alpha, tau=estimator.tau).plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        axes = _axes(None, ncols=2, figsize=(9, 3.6)) if ax is None else np.asarray(ax, object)
        if np.shape(axes) != (2,):
            raise ValueError("ax must be a sequence of 2 axes: for the objective and the violation")
        measure = "violation" if self.tau is None else "gap"
        rounds = np.arange(len(self.history["objective"]))
        for each, name in zip(axes, ("objective", measure), strict=True):
            values = np.asarray(self.history[name], dtype=float)
            each.plot(rounds, values, **{"marker": ".", **options})
            positive = values[values > 0]
            if positive.size and positive.max() > LOG_AXIS * positive.min():
                each.set_yscale("log")
            each.set_xlabel("round of training")
            each.xaxis.get_major_locator().set_params(integer=True)
        axes[0].set_ylabel("objective")
        axes[1].set_ylabel("largest violation found" if self.tau is None else "bound of the gap")
        if self.alpha:
            axes[1].axhline(self.alpha, color="0.4", linestyle="--", linewidth=1)
            axes[1].set_title(f"optimal at alpha = {self.alpha:.3g} (dashed)", fontsize="medium")
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
            One of the six estimators, a search or a Pipeline that ends with one, fitted. Of a
            search the best estimator is shown.
        output : class, level, name or position
            As in `interaction_matrix` of the estimator; of a PolyModel the name or the position.
        max_features : int
            With more features than that, those with the largest interactions are shown.
        standardized : bool
            Show the coefficients of features in the units in which the model was trained, for
            dense X those of unit variance, so that they can be compared; else those of the
            features as they were given. A PolyModel knows only the latter.
        ax : matplotlib Axes, optional
        **options
            Passed on to matplotlib's `imshow`.

        Returns
        -------
        InteractionDisplay
        """
        max_features = as_count(max_features, "max_features")
        model, unit = estimator, None
        if not isinstance(model, PolyModel):
            from fastpoly.estimators.fitted import feature_names_of, fitted_estimator

            fitted = fitted_estimator(estimator)
            output, model = fitted._output_position(output), fitted.model_
            model = replace(model, feature_names=feature_names_of(estimator))
            unit = fitted._scaling.factor if standardized else None
        elif output is None:
            if model.n_outputs > 1:
                raise ValueError(f"say which output: a position below {model.n_outputs} or a name")
            output = 0
        label = "C in x'Cx" if unit is None else "C in x'Cx, x standardized"
        model = model if unit is None else _in_units(model, 1 / unit)
        F, v, _ = model._factors(output)
        shown = strongest_features(F, v, max_features, squares=model.activation == "squared")
        names = model.feature_names or range(model.n_features)
        matrix = _restricted(model, shown).interaction_matrix(output)
        display = cls(matrix, [names[i] for i in shown], title=_title(model, output), label=label)
        return display.plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        ax = _axes(ax, figsize=(7, 6))
        largest = np.abs(self.matrix).max() or 1.0
        limits = {} if "norm" in options else {"vmin": -largest, "vmax": largest}
        style = {"cmap": "RdBu_r", **limits, **options}
        self.image_ = ax.imshow(self.matrix, **style)
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
    """Which output a picture shows: "class setosa"."""
    position = model._output(output)
    kind = KINDS.get(model.task, "output")
    if model.output_names:
        return f"{kind} {model.output_names[position]}"
    return "interactions" if model.n_outputs == 1 else f"{kind} {position}"


def _color_key(ax: "Axes", colors: Floats, labels: list[str]) -> None:
    """A color bar with a field per alpha: unlike a legend, it hides no line."""
    import matplotlib as mpl

    n = len(labels)
    norm = mpl.colors.BoundaryNorm(np.arange(n + 1) - 0.5, n)
    mappable = mpl.cm.ScalarMappable(norm, mpl.colors.ListedColormap(colors))
    bar = ax.figure.colorbar(mappable, ax=ax)
    bar.ax.set_xlabel("alpha")
    ticks = range(0, n, -(-n // MOST_TICKS))
    bar.set_ticks(ticks, labels=[labels[i] for i in ticks])
    bar.ax.minorticks_off()
    bar.ax.invert_yaxis()  # the largest alpha comes first


def _in_units(model: PolyModel, unit: Floats) -> PolyModel:
    """The model of x / unit."""
    linear = None if model.linear is None else model.linear * unit
    return replace(model, H=model.H * np.append(np.ones(int(model.augment)), unit), linear=linear)


def _restricted(model: PolyModel, shown: NDArray[np.intp]) -> PolyModel:
    """The model on some of its features only."""
    columns = np.append(0, shown + 1) if model.augment else shown
    linear = None if model.linear is None else model.linear[:, shown]
    return replace(model, H=model.H[:, columns], linear=linear, feature_names=None)
