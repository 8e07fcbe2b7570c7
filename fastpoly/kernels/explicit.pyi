import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.matrix import Matrix

class ExplicitGamma(Gamma):
    def __init__(self, G: ArrayLike) -> None: ...
    def combined(self, S: ArrayLike) -> Gamma: ...
    def blocks_array(self) -> NDArray[np.float64]: ...

def explicit_gamma(
    X: Matrix, D: ArrayLike, anova: bool = False, n_threads: int | None = 1
) -> ExplicitGamma: ...
def make_gamma(
    X: Matrix, D: ArrayLike, activation: str = "squared", n_threads: int | None = 1
) -> Gamma: ...
