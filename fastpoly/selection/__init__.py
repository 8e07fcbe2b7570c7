"""The oracle: which basis vectors violate the optimality condition most."""

from fastpoly.selection.oracle import METHODS, Selection, select_basis

__all__ = ["METHODS", "Selection", "select_basis"]
