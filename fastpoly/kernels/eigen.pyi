from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.gamma import Gamma

METHODS: tuple[str, ...]

class Dominant(NamedTuple):
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    residuals: NDArray[np.float64]
    bounds: NDArray[np.float64]
    n_matvecs: int

def dominant_eigenvectors(
    gamma: Gamma,
    method: str = "auto",
    tol: float = 5e-3,
    max_matvecs: int = 300,
    each: bool = False,
    start: ArrayLike | None = None,
    random_state: object = None,
) -> Dominant: ...
