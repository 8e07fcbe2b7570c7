"""Limit BLAS to one thread while the threads of a pass work.

If threaded passes and threaded BLAS calls alternate, they compete for the cores, because the
workers of BLAS spin while a pass runs. Passes have their own threads, so BLAS gets only one.
threadpoolctl does this; it comes with scikit-learn.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

import scipy.linalg  # noqa: F401  (its BLAS must be loaded before the controller looks for it)
from threadpoolctl import ThreadpoolController


class _Hold:
    """The number of threads belongs to the process. The first user sets it and the last one
    restores it, whichever Python threads they are in."""

    def __init__(self) -> None:
        self.lock, self.depth, self.threads = Lock(), 0, []

    def enter(self) -> None:
        with self.lock:
            if self.depth == 0:
                # Not ThreadpoolController.limit, which takes longer than some passes over shards.
                self.threads = [(library, library.get_num_threads()) for library in _libraries()]
                for library, _ in self.threads:
                    library.set_num_threads(1)
            self.depth += 1

    def leave(self) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                for library, n_threads in self.threads:
                    library.set_num_threads(n_threads)


@cache
def _libraries() -> list[Any]:
    return ThreadpoolController().select(user_api="blas").lib_controllers


_hold = _Hold()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which every BLAS library of the process uses one thread."""
    _hold.enter()
    try:
        yield
    finally:
        _hold.leave()
