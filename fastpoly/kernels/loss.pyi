from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Target = Literal["label", "sign", "real"]

class Loss:
    name: ClassVar[str]
    target: ClassVar[Target]
    shift_invariant: ClassVar[bool]
    equivariant: ClassVar[bool]
    robust: ClassVar[bool]
    link: ClassVar[str]
    log_odds: ClassVar[bool]
    def encode(self, y: ArrayLike, n_outputs: int | None = None) -> NDArray[np.float64]: ...
    def check_targets(self, Y: ArrayLike, n_outputs: int) -> None: ...
    def value(self, Y: ArrayLike, O: ArrayLike, w: ArrayLike | None = None) -> float: ...
    def value_grad(
        self,
        Y: ArrayLike,
        O: ArrayLike,
        w: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
        n_threads: int | None = 1,
    ) -> tuple[float, NDArray[np.float64]]: ...
    def curvature(
        self,
        Y: ArrayLike,
        O: ArrayLike,
        w: ArrayLike | None = None,
        out: NDArray[np.float64] | None = None,
    ) -> NDArray[np.float64]: ...
    def hessian(
        self, Y: ArrayLike, O: ArrayLike, w: ArrayLike | None = None
    ) -> NDArray[np.float64]: ...
    def conjugate(
        self, Y: ArrayLike, U: ArrayLike, scale: float = 1.0, w: ArrayLike | None = None
    ) -> float: ...
    def smoothness(self, n_outputs: int) -> float: ...
    def __reduce__(self) -> tuple[Any, ...]: ...
