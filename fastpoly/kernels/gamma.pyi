from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.matrix import Matrix

class Gamma:
    d: int
    m: int
    width: int
    def matvecs(self, B: ArrayLike, *, finite: bool = True) -> NDArray[np.float64]: ...
    def forms(self, h: ArrayLike, *, finite: bool = True) -> NDArray[np.float64]: ...
    def combine(
        self, w: ArrayLike, h: ArrayLike, *, finite: bool = True
    ) -> NDArray[np.float64]: ...
    def dense(self) -> NDArray[np.float64]: ...

class RowGamma(Gamma):
    X: Matrix
    anova: bool
    n_threads: int
    def __init__(
        self, X: Any, D: ArrayLike, anova: bool = False, n_threads: int | None = 1
    ) -> None: ...
    def combined(self, S: ArrayLike) -> Gamma: ...

class CsrGamma(RowGamma): ...
class DenseGamma(RowGamma): ...
