"""The oracle: which basis vectors violate the optimality condition most."""

from fastpoly.selection import methods  # noqa: F401  (it names its oracles)
from fastpoly.selection.oracle import METHODS, Request, Selection, as_oracle, select_basis

__all__ = ["METHODS", "Request", "Selection", "as_oracle", "select_basis"]
