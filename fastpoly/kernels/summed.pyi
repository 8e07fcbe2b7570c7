from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.matrix import Matrix

class SummedGamma(Gamma):
    sample: Callable[[int, np.random.Generator], tuple[Matrix, str]] | None
    def __init__(
        self,
        d: int,
        m: int,
        operators: Any,
        sample: Callable[[int, np.random.Generator], tuple[Matrix, str]] | None = None,
        S: NDArray[np.float64] | None = None,
    ) -> None: ...
    def combined(self, S: ArrayLike) -> Gamma: ...
