"""The objective and the violation during training."""

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fastpoly.plotting.axes import get_axes


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
        from fastpoly.plotting.fitted import fitted_estimator

        estimator = fitted_estimator(estimator)
        alpha = getattr(estimator, "alpha_", None)
        return cls(estimator.history_, alpha=alpha, tau=estimator.tau).plot(ax, **options)

    def plot(self, ax: Any = None, **options: Any) -> Self:
        """Draw; the arguments are those of `from_estimator`."""
        axes = get_axes(None, ncols=2, figsize=(9, 3.6)) if ax is None else np.asarray(ax, object)
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
