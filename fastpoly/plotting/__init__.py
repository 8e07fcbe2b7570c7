"""Pictures of searches, of training and of models. Needs the extra `plot` (matplotlib).

The displays follow scikit-learn: `from_estimator` takes what it needs from a fitted object and
plots it, `plot` draws the same again elsewhere, and the display keeps `ax_` and `figure_`. Fitted
searches and Pipelines are opened. Keys stand outside the axes and hide nothing.
"""

from fastpoly.plotting.convergence import ConvergenceDisplay
from fastpoly.plotting.interactions import InteractionDisplay
from fastpoly.plotting.path import PathDisplay

__all__ = ["ConvergenceDisplay", "InteractionDisplay", "PathDisplay"]
