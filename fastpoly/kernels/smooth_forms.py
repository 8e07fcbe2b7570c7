"""Smooth forms of alpha sum_r ||v_r|| |h_r|^2, in which H and V can descend together.

The model does not change when h_r is divided by c and v_r multiplied by c^2. Each form fixes that
scale, so that the penalty becomes smooth. The minimum of a form over the scale is the penalty.

==========  ===============================================  ========================
penalty     smooth form                                      constraint
==========  ===============================================  ========================
l1/l2       alpha / 2 sum_r (|v_r|^2 + |h_r|^4)              none
l1/linf     alpha sum_r |h_r|^2                              |v_rc| <= 1
l1          alpha sum_r |h_r|^2                              v_r = +-e_c, held fixed
==========  ===============================================  ========================

H (k, d), V (k, m).
"""

import numpy as np

from fastpoly.kernels.checks import Floats


def squared_norms(H: Floats) -> Floats:
    """|h_r|^2, (k,)."""
    return np.einsum("rj,rj->r", H, H)


class SmoothForm:
    """Base class: ||v_r|| = 1, and h_r carries the weight of its unit, |h_r|^2."""

    bound: float | None = None  # |v_rc| <= bound
    fixed = False  # whether V does not move and every unit serves one output

    def scale(self, H: Floats, V: Floats, norms: Floats) -> tuple[Floats, Floats]:
        """The same model in this scale, from unit vectors H and rows of V with these norms > 0."""
        return H * np.sqrt(norms)[:, None], V / norms[:, None]

    def value_grad(self, H: Floats, V: Floats, alpha: float, GH: Floats, GV: Floats) -> float:
        """Return the value of the form; add its gradients to GH and GV."""
        GH += 2 * alpha * H
        return alpha * float(np.vdot(H, H))

    def curvature(self, H: Floats, alpha: float, HT: Floats, T2: Floats) -> Floats:
        """Second derivatives along the columns of T (d, p), (k, p): HT = H T, T2 = |T_:j|^2."""
        return np.broadcast_to(2 * alpha * T2, HT.shape)

    def output_curvature(self, alpha: float) -> float:
        """Second derivative in every entry of V."""
        return 0.0


class Balanced(SmoothForm):
    """l1/l2: both layers share the weight, |v_r| = |h_r|^2."""

    def scale(self, H: Floats, V: Floats, norms: Floats) -> tuple[Floats, Floats]:
        return H * (norms**0.25)[:, None], V / np.sqrt(norms)[:, None]

    def value_grad(self, H: Floats, V: Floats, alpha: float, GH: Floats, GV: Floats) -> float:
        h2 = squared_norms(H)
        GH += (2 * alpha * h2)[:, None] * H
        GV += alpha * V
        return 0.5 * alpha * float(h2 @ h2 + np.vdot(V, V))

    def curvature(self, H: Floats, alpha: float, HT: Floats, T2: Floats) -> Floats:
        return 2 * alpha * (squared_norms(H)[:, None] * T2 + 2 * HT**2)

    def output_curvature(self, alpha: float) -> float:
        return alpha


class Box(SmoothForm):
    """l1/linf: the entries of V stay in a box."""

    bound = 1.0


class Signs(SmoothForm):
    """l1: a unit serves one output, with a fixed sign."""

    fixed = True
