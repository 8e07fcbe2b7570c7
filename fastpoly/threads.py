"""BLAS held to one thread while our own threads work.

OpenMP regions and threaded BLAS calls that alternate fight for the cores: the workers of one spin
while the other wants to run. A pass of ours has threads of its own, so BLAS gets one meanwhile.
threadpoolctl does this; it comes with scikit-learn.
"""

from contextlib import AbstractContextManager
from functools import lru_cache

import scipy.linalg  # noqa: F401  (its BLAS must be loaded before the controller looks for it)
from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager:
    """A context in which every BLAS library of the process uses one thread."""
    return _controller().limit(limits=1, user_api="blas")
