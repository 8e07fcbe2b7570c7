"""Refitting: the output layer alone (convex), output layer and basis vectors, or one step."""

from fastpoly.refit.output import Refit, refit_output

__all__ = ["Refit", "refit_output"]
