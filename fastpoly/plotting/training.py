"""Plots of training: the convergence of a fit, and the scores of a search along its path."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


class Display:
    """A plot that keeps its axes."""

    ax_: Any
    figure_: "Figure"

    def _axes(self, ax: Any, **size: Any) -> Any:
        """The given axes, or those of a new figure."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                "plots need matplotlib; install it with: pip install matplotlib"
            ) from error
        self.ax_ = plt.subplots(layout="constrained", **size)[1] if ax is None else ax
        self.figure_ = np.ravel(np.asarray(self.ax_, object))[0].figure
        return self.ax_


def plain_text(name: Any) -> str:
    """A name as matplotlib shows it: "$" begins no formula."""
    return str(name).replace("$", r"\$").replace("\0", r"\0")


class ConvergenceDisplay(Display):
    """Objective and optimality after each round of training.

    Parameters
    ----------
    history : dict of arrays
        "objective" and "violation", as in the `history_` of an estimator; for the constrained
        form, "gap" in place of the violation.
    alpha : float, optional
        The model is optimal when the violation falls to this value.
    tau : float, optional
        Given for the constrained form, for which the bound on the gap is shown.

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
        self.history, self.alpha, self.tau = history, alpha, tau

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None, **options: Any) -> Self:
        """Plot the `history_` of a fitted estimator.

        Parameters
        ----------
        estimator : one of the six estimators, a search or a Pipeline that ends with one, fitted
            For a search, the best estimator is shown.
        ax : sequence of 2 matplotlib Axes, optional
        **options
            Passed on to matplotlib's `plot`.

        Returns
        -------
        ConvergenceDisplay
        """
        from fastpoly.estimators.prediction import fitted_estimator

        estimator, _ = fitted_estimator(estimator)
        alpha = getattr(estimator, "alpha_", None)
        return cls(estimator.history_, alpha=alpha, tau=estimator.tau).plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        if ax is not None and np.shape(np.asarray(ax, object)) != (2,):
            raise ValueError("ax must be a sequence of 2 axes, for the objective and the violation")
        axes = self._axes(ax, ncols=2, figsize=(9, 3.6))
        names = "objective", "violation" if self.tau is None else "gap"
        labels = "objective", "largest violation found" if self.tau is None else "bound of the gap"
        rounds = np.arange(len(self.history["objective"]))
        for each, name, label in zip(axes, names, labels, strict=True):
            values = np.asarray(self.history[name], dtype=float)
            each.plot(rounds, values, **{"marker": ".", **options})
            each.set(xlabel="round of training", ylabel=label)
            positive = values[values > 0]
            if positive.size and positive.max() > 10 * positive.min():
                each.set_yscale("log")
            each.xaxis.get_major_locator().set_params(integer=True)
        if self.alpha:
            axes[1].set_title(f"optimal at alpha = {self.alpha:.3g} (dashed)", fontsize="medium")
            axes[1].axhline(self.alpha, linestyle="--", color="0.4", linewidth=1)
        return self


class PathDisplay(Display):
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
        self, alphas: ArrayLike, n_components: ArrayLike, mean: ArrayLike,
        std: ArrayLike | None = None, *, best: tuple[float, int] | None = None,
        score_name: str = "validation score",
    ) -> None:  # fmt: skip
        self.alphas, self.n_components = np.asarray(alphas, dtype=float), np.asarray(n_components)
        self.mean = np.asarray(mean, dtype=float)
        self.std = None if std is None else np.asarray(std, dtype=float)
        self.best, self.score_name = best, score_name
        shape = len(self.alphas), len(self.n_components)
        if self.mean.shape != shape or (self.std is not None and self.std.shape != shape):
            raise ValueError(f"mean and std must have shape {shape}, one row per alpha")

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
        from sklearn.utils.validation import check_is_fitted

        from fastpoly.estimators.folds import negative_log_loss, pipeline_parts
        from fastpoly.estimators.search import PathSearchCV

        search = pipeline_parts(search)[1]
        if not isinstance(search, PathSearchCV):
            raise TypeError(f"a PathSearchCV is needed, got {type(search).__name__}")
        check_is_fitted(search, "cv_results_")
        name = "score: negative log-loss" if search.scorer_ is negative_log_loss else "score"
        if isinstance(search.scoring, str):
            name = search.scoring.replace("neg_", "negative ").replace("_", " ")
        mean, std = (
            search.cv_results_[f"{each}_test_score"].reshape(len(search.alphas_), -1)
            for each in ("mean", "std")
        )
        return cls(
            search.alphas_, np.arange(1, mean.shape[1] + 1), mean,
            std if search.n_splits_ > 1 else None, best=tuple(search.best_params_.values()),
            score_name=f"validation {name}",
        ).plot(ax, **options)  # fmt: skip

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        ax, sizes = self._axes(ax, figsize=(7.5, 4.8)), self.n_components
        import matplotlib as mpl

        options = mpl.cbook.normalize_kwargs(options, mpl.lines.Line2D)  # "c" is "color"
        colors = mpl.colormaps["viridis"](np.linspace(0.95, 0.0, len(self.alphas)))
        chosen = None if self.best is None else int(np.abs(self.alphas - self.best[0]).argmin())
        self.lines_: list[Any] = []
        for row, (alpha, color) in enumerate(zip(self.alphas, colors, strict=True)):
            # Two alphas with equal scores mostly have the same model, found with the larger one.
            style = {"color": color, "label": f"{alpha:.3g}", "zorder": 3 - row / len(colors)}
            style |= {"drawstyle": "steps-post", **options}
            self.lines_ += ax.plot(sizes, self.mean[row], **style)
            if self.std is not None and chosen in (None, row):
                low, high = self.mean[row] - self.std[row], self.mean[row] + self.std[row]
                steps = "post" if style["drawstyle"] == "steps-post" else None
                band = {"color": style["color"], "alpha": 0.15, "linewidth": 0, "zorder": 1}
                ax.fill_between(sizes, low, high, step=steps, **band)
        if chosen is not None:
            column = int(np.abs(sizes - self.best[1]).argmin())
            circle = {"markersize": 9, "markerfacecolor": "none", "markeredgecolor": "black"}
            score = self.mean[chosen, column]
            ax.plot(sizes[column], score, "o", label="best", zorder=4, **circle)
            best = f"alpha = {self.alphas[chosen]:.3g}, n_components = {sizes[column]}"
            ax.set_title(f"best (circle): {best}", fontsize="medium")
        if "color" not in options:
            color_key(ax, colors, [f"{alpha:.3g}" for alpha in self.alphas])
        # All sizes, or those up to the last change of a line, with a margin.
        changes = (np.diff(self.mean, axis=1) != 0).any(axis=0)
        last = sizes[1:][changes][-1] if changes.any() else sizes[-1]
        end = min(sizes[-1] + 0.5, last + 0.25 * (last - sizes[0]) + 0.5)
        ax.set(xlabel="number of basis vectors", ylabel=self.score_name, xlim=(sizes[0] - 0.5, end))
        ax.locator_params(axis="x", integer=True)
        return self


def color_key(ax: "Axes", colors: NDArray, labels: list[str]) -> None:
    """A color bar with one field per alpha; unlike a legend, it hides no line."""
    import matplotlib as mpl

    n = len(labels)
    norm = mpl.colors.BoundaryNorm(np.arange(n + 1) - 0.5, n)
    mappable = mpl.cm.ScalarMappable(norm, mpl.colors.ListedColormap(colors))
    bar = ax.figure.colorbar(mappable, ax=ax)
    bar.ax.set_xlabel("alpha")
    step = -(-n // 15)  # few enough to be read
    bar.set_ticks(range(0, n, step), labels=labels[::step])
    bar.ax.minorticks_off()
    bar.ax.invert_yaxis()  # the largest alpha comes first
