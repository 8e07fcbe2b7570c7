"""Multi-output polynomial networks and factorization machines.

The names below are loaded when they are first used, so that importing fastpoly imports neither
scikit-learn nor matplotlib.
"""

import importlib
from importlib.metadata import version

_LAZY = {
    "Design": "design",
    "PolyModel": "model",
    "select_basis": "selection",
}

__version__ = version("fastpoly")
__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(importlib.import_module(f"fastpoly.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'fastpoly' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
