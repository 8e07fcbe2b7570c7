"""Plots of training: the convergence of a fit, and the scores of a search along its path."""

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def get_axes(ax: "Axes | None", **size: Any) -> "Axes":
    """The given axes, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "plots need matplotlib; install it with: pip install matplotlib"
        ) from error
    return plt.subplots(layout="constrained", **size)[1] if ax is None else ax


class ConvergenceDisplay:
    """Objective and optimality after each round of training.

    Parameters
    ----------
    history : dict of arrays
        "objective" and "violation", as in the `history_` of an estimator; for the constrained
        form, "gap" in place of the violation. With "alpha", a dotted line marks where it changes.
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
        self.history = history
        self.alpha = alpha
        self.tau = tau

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
        from fastpoly.estimators.search import fitted_estimator

        estimator, _ = fitted_estimator(estimator)
        alpha = getattr(estimator, "alpha_", None)
        return cls(estimator.history_, alpha=alpha, tau=estimator.tau).plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        axes: Any = np.asarray(ax, object)
        if ax is None:
            axes = get_axes(None, ncols=2, figsize=(9, 3.6))
        if np.shape(axes) != (2,):
            raise ValueError("ax must be a sequence of 2 axes, for the objective and the violation")
        measure = "violation" if self.tau is None else "gap"
        n = len(self.history["objective"])
        alphas = np.asarray(self.history.get("alpha", np.full(n, np.nan)), dtype=float)
        changed = np.abs(np.diff(alphas, prepend=alphas[:1])) > 0
        rounds = np.arange(n)
        for each, name in zip(axes, ("objective", measure), strict=True):
            values = np.asarray(self.history[name], dtype=float)
            each.plot(rounds, values, **{"marker": ".", **options})
            if (values > 0).any():
                each.set_yscale("log")
            each.set_xlabel("round of training")
            each.xaxis.get_major_locator().set_params(integer=True)
        axes[0].set_ylabel("objective")
        axes[1].set_ylabel("largest violation found" if self.tau is None else "bound of the gap")
        if self.alpha:
            gray = {"color": "0.4", "linewidth": 1}
            if changed.any():
                axes[0].set_title("alpha changes at the dotted line", fontsize="medium")
                axes[1].step(rounds, alphas, where="post", linestyle="--", **gray)
            else:
                axes[1].axhline(self.alpha, linestyle="--", **gray)
            for each in axes:
                for at in rounds[changed]:
                    each.axvline(at, linestyle=":", **gray)
            axes[1].set_title(f"optimal at alpha = {self.alpha:.3g} (dashed)", fontsize="medium")
        self.ax_, self.figure_ = axes, axes[0].figure
        return self


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
        from sklearn.pipeline import Pipeline
        from sklearn.utils.validation import check_is_fitted

        from fastpoly.estimators.folds import negative_log_loss
        from fastpoly.estimators.search import PathSearchCV

        search = search[-1] if isinstance(search, Pipeline) else search
        if not isinstance(search, PathSearchCV):
            raise TypeError(f"a PathSearchCV is needed, got {type(search).__name__}")
        check_is_fitted(search, "cv_results_")
        table, shape = search.cv_results_, (len(search.alphas_), -1)
        sizes = np.array([k for _, k in map(dict.values, table["params"])])
        name = "score: negative log-loss" if search.scorer_ is negative_log_loss else "score"
        if isinstance(search.scoring, str):
            name = search.scoring.replace("neg_", "negative ").replace("_", " ")
        display = cls(
            search.alphas_,
            sizes.reshape(shape)[0],
            table["mean_test_score"].reshape(shape),
            table["std_test_score"].reshape(shape) if search.n_splits_ > 1 else None,
            best=tuple(search.best_params_.values()),
            score_name=f"validation {name}",
        )
        return display.plot(ax, **options)

    def plot(self, ax: "Axes | None" = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        ax = get_axes(ax, figsize=(7.5, 4.8))
        import matplotlib as mpl

        options = mpl.cbook.normalize_kwargs(options, mpl.lines.Line2D)  # "c" is "color"
        colors = mpl.colormaps["viridis"](np.linspace(0.95, 0.0, len(self.alphas)))
        chosen = None if self.best is None else int(np.abs(self.alphas - self.best[0]).argmin())
        self.lines_ = []
        for row, (alpha, color) in enumerate(zip(self.alphas, colors, strict=True)):
            # Two alphas with equal scores mostly have the same model, found with the larger one.
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
        ax.locator_params(axis="x", integer=True)
        ax.set_xlim(self._limits())
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _limits(self) -> tuple[float, float]:
        """All sizes, or those up to the last change of a line, with a margin."""
        sizes, changes = self.n_components, (np.diff(self.mean, axis=1) != 0).any(axis=0)
        last = sizes[1:][changes][-1] if changes.any() else sizes[-1]
        margin = 0.25 * (last - sizes[0]) + 0.5
        return sizes[0] - 0.5, min(sizes[-1] + 0.5, last + margin)


def _color_key(ax: "Axes", colors: NDArray, labels: list[str]) -> None:
    """A color bar with one field per alpha; unlike a legend, it hides no line."""
    import matplotlib as mpl

    n = len(labels)
    norm = mpl.colors.BoundaryNorm(np.arange(n + 1) - 0.5, n)
    mappable = mpl.cm.ScalarMappable(norm, mpl.colors.ListedColormap(colors))
    bar = ax.figure.colorbar(mappable, ax=ax)
    bar.ax.set_xlabel("alpha")
    places = mpl.ticker.MaxNLocator(integer=True).tick_values(0, n - 1)
    ticks = [int(place) for place in places if 0 <= place < n]
    bar.set_ticks(ticks, labels=[labels[i] for i in ticks])
    bar.ax.minorticks_off()
    bar.ax.invert_yaxis()  # the largest alpha comes first
