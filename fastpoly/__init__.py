"""Multi-output polynomial networks and factorization machines.

The core is imported at once; the scikit-learn layer when one of its names is first used, so that
importing fastpoly imports neither scikit-learn nor matplotlib.
"""

from importlib.metadata import version

from fastpoly.conditional_gradient import State, conditional_gradient
from fastpoly.design import Design
from fastpoly.model import PolyModel
from fastpoly.path import alpha_max
from fastpoly.selection import select_basis

__version__ = version("fastpoly")
__all__ = [
    "Design",
    "PolyModel",
    "State",
    "__version__",
    "alpha_max",
    "conditional_gradient",
    "select_basis",
]
