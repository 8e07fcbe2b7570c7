"""Limit BLAS to one thread while the threads of a pass work.

If threaded passes and threaded BLAS calls alternate, they compete for the cores, because the
workers of BLAS spin while a pass runs. Passes have their own threads, so BLAS gets only one.
threadpoolctl does this; it comes with scikit-learn.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

import scipy.linalg  # noqa: F401  (its BLAS must be loaded before the controller looks for it)
from threadpoolctl import ThreadpoolController


class _Hold:
    """The number of threads belongs to the process. The first user sets it and the last one
    restores it, whichever Python threads they are in."""

    def __init__(self) -> None:
        self.lock, self.depth, self.controller, self.limiter = Lock(), 0, None, None

    def enter(self) -> None:
        with self.lock:
            if self.depth == 0:
                self.controller = self.controller or ThreadpoolController()
                self.limiter = self.controller.limit(limits=1, user_api="blas")
                self.limiter.__enter__()
            self.depth += 1

    def leave(self) -> None:
        with self.lock:
            self.depth -= 1
            if self.depth == 0:
                self.limiter.__exit__(None, None, None)


_hold = _Hold()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """A context in which every BLAS library of the process uses one thread."""
    _hold.enter()
    try:
        yield
    finally:
        _hold.leave()
