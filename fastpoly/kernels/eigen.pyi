from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.gamma import Gamma

METHODS: tuple[str, ...]
EIGH_FEATURES: int

class Dominant(NamedTuple):
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    residuals: NDArray[np.float64]
    bounds: NDArray[np.float64]
    n_matvecs: int

class Ritz(NamedTuple):
    values: NDArray[np.float64]
    vectors: NDArray[np.float64]
    outputs: NDArray[np.intp]
    dominant: Dominant

def dominant_eigenvectors(
    gamma: Gamma,
    method: str = "auto",
    tol: float = 5e-3,
    max_matvecs: int = 300,
    each: bool = False,
    start: ArrayLike | None = None,
    random_state: object = None,
) -> Dominant: ...
def ritz_vectors(
    gamma: Gamma,
    n_vectors: int,
    n_steps: int,
    tol: float = 5e-3,
    max_matvecs: int = 300,
    start: ArrayLike | None = None,
    random_state: object = None,
) -> Ritz: ...
