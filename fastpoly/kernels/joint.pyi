from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fastpoly.kernels.matrix import Matrix

class Curvature(NamedTuple):
    basis: NDArray[np.float64]
    output: NDArray[np.float64]
    intercept: NDArray[np.float64] | None
    linear: NDArray[np.float64] | None

class JointPass:
    X: Matrix
    n: int
    d: int
    m: int
    n_threads: int

class JointObjective(JointPass):
    loss: Any
    linear: bool
    def __init__(
        self,
        X: Matrix,
        loss: Any,
        Y: ArrayLike,
        n_outputs: int,
        w: ArrayLike | None = None,
        *,
        activation: str = "squared",
        linear: bool = False,
        n_threads: int | None = 1,
        levels: NDArray[np.uint8] | None = None,
        spare: list[NDArray[np.float64]] | None = None,
    ) -> None: ...
    @property
    def activation(self) -> str: ...
    @property
    def targets(self) -> NDArray[np.float64]: ...
    @property
    def w_array(self) -> NDArray[np.float64] | None: ...
    def n_parameters(self, k: int) -> int: ...
    def threads_used(self, k: int) -> int: ...
    def value_grad(
        self,
        H: ArrayLike,
        V: ArrayLike,
        b: ArrayLike | None = None,
        W: ArrayLike | None = None,
        *,
        basis: bool = True,
        D: NDArray[np.float64] | None = None,
    ) -> tuple[
        float,
        NDArray[np.float64] | None,
        NDArray[np.float64],
        NDArray[np.float64] | None,
        NDArray[np.float64] | None,
    ]: ...
    def value_grad_packed(
        self, x: NDArray[np.float64], k: int, g: NDArray[np.float64]
    ) -> float: ...
    def outputs(
        self,
        H: ArrayLike,
        V: ArrayLike,
        b: ArrayLike | None = None,
        W: ArrayLike | None = None,
    ) -> NDArray[np.float64]: ...
    def curvature(
        self,
        H: ArrayLike,
        V: ArrayLike,
        b: ArrayLike | None = None,
        W: ArrayLike | None = None,
    ) -> Curvature: ...
