"""Plots of searches, of training and of models. They need the extra `plot` (matplotlib).

The displays follow scikit-learn: `from_estimator` plots a fitted object, `plot` draws the same
again on other axes, and the display keeps `ax_` and `figure_`. For fitted searches and Pipelines,
the model inside them is shown. Legends stand outside the axes, so that they hide nothing.
"""

from fastpoly.plotting.effects import ContributionDisplay, ShapeDisplay
from fastpoly.plotting.interactions import InteractionDisplay
from fastpoly.plotting.training import ConvergenceDisplay, PathDisplay

__all__ = [
    "ContributionDisplay",
    "ConvergenceDisplay",
    "InteractionDisplay",
    "PathDisplay",
    "ShapeDisplay",
]
