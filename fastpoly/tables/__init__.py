"""Frames as codes with tables: levels, numbers in bins, lists and gaps."""

from importlib import import_module
from typing import Any

from fastpoly.tables.encoding import Encoding

__all__ = ["Encoding", "TableEncoder"]


def __getattr__(name: str) -> Any:
    """`TableEncoder` belongs to the scikit-learn layer, which is imported on first use."""
    if name != "TableEncoder":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("fastpoly.estimators").TableEncoder
