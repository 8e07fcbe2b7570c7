"""The verbs that a loss or a penalty written in Python may lack, and what takes their place.

The compiled losses and penalties have all verbs. `get_loss` and `get_penalty` give them to any
other object, so that no other code has to ask which verbs there are.
"""

import copyreg
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike

from fastpoly.kernels.checks import Floats, as_float_array, encode_targets


class _Complete:
    """An object with all verbs: its own, and those of this class where it lacks one."""

    verbs: ClassVar[tuple[str, ...]] = ()

    def __init__(self, given: Any) -> None:
        self.given = given
        for verb in self.verbs:
            if hasattr(given, verb):
                setattr(self, verb, getattr(given, verb))

    @classmethod
    def of(cls, given: Any) -> Self | Any:
        """The object itself if it has all verbs, because it is compiled or complete.

        TypeError for a Python class that replaces verbs of a compiled one: kernels would call both.
        """
        bases = type(given).__mro__
        n = next((i for i, base in enumerate(bases) if "__pyx_vtable__" in vars(base)), None)
        if n is None:
            return given if isinstance(given, cls) else cls(given)
        replaced = [verb for verb in cls.verbs for base in bases[:n] if verb in vars(base)]
        if replaced:
            raise TypeError(
                f"{bases[0].__name__} replaces `{replaced[0]}` of {bases[n].__name__}, which "
                "compiled code would not notice; write a class that does not inherit from it"
            )
        return given

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.given,)

    def __repr__(self) -> str:
        return repr(self.given)


class CompleteLoss(_Complete):
    """A loss with all verbs; the object needs `value_grad`.

    A curvature of infinity and a conjugate of NaN mean "not known", as for a compiled loss.
    """

    verbs = (
        "target", "value", "value_grad", "smoothness",
        "encode", "curvature", "hessian", "conjugate",
        "shift_invariant", "equivariant", "robust", "link", "log_odds",
    )  # fmt: skip
    target = "real"
    value_grad: Any
    shift_invariant = False
    equivariant = False
    robust = False
    link = "identity"
    log_odds = False
    hessian = None

    def value(self, Y: Floats, O: Floats, w: Floats | None = None) -> float:
        return self.value_grad(Y, O, w)[0]

    def smoothness(self, n_outputs: int) -> float:
        return np.inf

    def encode(self, y: ArrayLike, n_outputs: int | None = None) -> Floats:
        return encode_targets(self.target, y, n_outputs)

    def curvature(self, Y: Floats, O: Floats, w: Floats | None = None) -> Floats:
        return np.full(np.shape(O), np.inf)

    def conjugate(self, Y: Floats, U: Floats, scale: float = 1.0, w: Floats | None = None) -> float:
        return np.nan


class CompletePenalty(_Complete):
    """A penalty with all verbs; the object needs those that `get_penalty` lists."""

    verbs = (
        "value", "dual_norm", "prox", "project", "criterion",
        "polar", "row_norms", "dual_norms", "slopes",
        "dual_ratios", "n_vertices", "vertices", "separable", "smooth_form",
    )  # fmt: skip
    value: Any
    dual_norm: Any
    criterion: Any
    compiled = False
    separable = False
    smooth_form = None

    def polar(self, q: ArrayLike) -> Floats:
        raise TypeError(
            "refit=None and a smooth_form need a penalty with a method `polar`; define it, or use "
            'refit="output"'
        )

    def row_norms(self, V: ArrayLike) -> Floats:
        return np.array([float(self.value(row[None])) for row in np.asarray(V)])

    def dual_norms(self, Q: ArrayLike) -> Floats:
        return np.array([float(self.dual_norm(row[None])) for row in np.asarray(Q)])

    def slopes(self, Q: ArrayLike, threshold: float = 1e-6) -> Floats:
        Q = np.asarray(Q)
        W = np.zeros(Q.shape)
        for q, w in zip(Q, W, strict=True):
            if q.any():
                x = q / np.abs(q).max() / threshold
                w[:] = self.criterion(x)[1]
                product = w @ x
                w *= float(self.dual_norm(x[None])) / product if product != 0 else 0.0
        return W

    def dual_ratios(self, m: int) -> tuple[float, float]:
        return ratios_of(self.dual_norms(np.eye(m)))

    def n_vertices(self, m: int) -> int | None:
        return None

    def vertices(self, m: int, first: int = 0, last: int | None = None) -> Floats:
        raise NotImplementedError(f"the unit ball of {self!r} has no list of vertices")


def ratios_of(norms: Floats) -> tuple[float, float]:
    """Ratios to |q|_1 and |q|_2 that no norm exceeds, given ||e_c||: ||q|| <= sum |q_c| ||e_c||."""
    return float(norms.max()), float(np.linalg.norm(norms))


def loss_curvature(loss: Any, Y: Floats, O: Floats, w: Floats | None) -> Floats:
    """Weighted second derivatives of a complete loss at the outputs O, (n, m).

    Where they are not known, the smoothness takes their place, or 1 if that is not known either.
    """
    C = as_float_array(loss.curvature(Y, O, w), "the curvature", O.shape, finite=False)
    if np.isfinite(C).all():
        return C
    bound = float(loss.smoothness(O.shape[1]))
    C = np.full(O.shape, bound if np.isfinite(bound) else 1.0)
    return C if w is None else C * w[:, None]


def reduce_object(instance: Any, base: type) -> tuple[Any, ...]:
    """`__reduce__` of a loss or a penalty: its class, and the attributes of Python subclasses.

    A compiled subclass of `base` with C attributes is refused: they cannot be read from here.
    """
    for cls in type(instance).__mro__:
        if "__pyx_vtable__" in vars(cls) and cls.__basicsize__ > base.__basicsize__:
            raise TypeError(
                f"cannot pickle or copy {type(instance).__name__}: {cls.__name__} has C attributes "
                "and must define __reduce__, e.g. as (type(self), (arguments of __init__,))"
            )
    new = copyreg.__newobj__  # type: ignore[attr-defined]
    return new, (type(instance),), instance.__getstate__()
