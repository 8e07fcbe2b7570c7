"""Where the rows of the data are: sums over rows of small things, behind one contract."""

from fastpoly.rows.design import Design

__all__ = ["Design"]
