from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.features import RowBlocks
from fastpoly.kernels.linear import LinearTerms

class Objective:
    features: RowBlocks
    loss: Any
    linear: LinearTerms | None
    n: int
    k: int
    m: int
    def __init__(
        self,
        features: RowBlocks,
        loss: Any,
        Y: ArrayLike,
        n_outputs: int,
        w: ArrayLike | None = None,
        linear: LinearTerms | None = None,
    ) -> None: ...
    @property
    def n_rows(self) -> int: ...
    @property
    def targets(self) -> NDArray[np.float64]: ...
    @property
    def w_array(self) -> NDArray[np.float64] | None: ...
    def value_grad(
        self, P: ArrayLike, D: NDArray[np.float64] | None = None
    ) -> tuple[float, NDArray[np.float64]]: ...
    def outputs(self, P: ArrayLike) -> NDArray[np.float64]: ...
    def gradient(self, D: NDArray[np.float64]) -> NDArray[np.float64]: ...
    def hessian_blocks(self, C: ArrayLike) -> NDArray[np.float64]: ...
