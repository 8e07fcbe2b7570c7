"""Frames as codes with tables: levels, numbers in bins, lists and gaps."""

from fastpoly.tables.encoding import Encoding

__all__ = ["Encoding"]
