"""Cases of the penalties, each against its NumPy form.

The NumPy forms are written as most people would: a sort for the levels and simplices, a bracketing
root finder for the l1/linf ball, whole-matrix temporaries for the FISTA step, no argument checks.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
from scipy.optimize import brentq

from fastpoly.kernels.penalties import PENALTIES, fista_update

from . import Case

SHAPES = ((150, 64), (30, 26), (15, 4))


def levels(A: np.ndarray, t: np.ndarray) -> np.ndarray:
    """The s_r >= 0 with sum_c max(A_rc - s_r, 0) = t_r, A >= 0 (k, m); 0 past the row sums."""
    ranked = -np.sort(-A, axis=1)
    candidates = (np.cumsum(ranked, axis=1) - t[:, None]) / np.arange(1, A.shape[1] + 1)
    last = np.maximum((ranked > candidates).sum(axis=1) - 1, 0)
    return np.maximum(candidates[np.arange(len(A)), last], 0)


def numpy_prox(name: str, V: np.ndarray, t: np.ndarray) -> np.ndarray:
    if name == "l1":
        return np.sign(V) * np.maximum(np.abs(V) - t[:, None], 0)
    if name == "l1/l2":
        norms = np.sqrt(np.einsum("rc,rc->r", V, V))
        return V * np.maximum(0, 1 - t / np.maximum(norms, 1e-300))[:, None]
    bound = levels(np.abs(V), t)[:, None]
    return np.clip(V, -bound, bound)


def numpy_project(name: str, V: np.ndarray, tau: float) -> np.ndarray:
    """For a V outside the ball."""
    A = np.abs(V)
    if name == "l1":
        theta = levels(A.reshape(1, -1), np.array([tau]))[0]
    elif name == "l1/l2":
        theta = levels(np.sqrt(np.einsum("rc,rc->r", V, V))[None], np.array([tau]))[0]
    else:
        theta = brentq(
            lambda theta: levels(A, np.full(len(A), theta)).sum() - tau, 0, A.sum(axis=1).max()
        )
    return numpy_prox(name, V, np.full(len(V), theta))


def numpy_update(name, Y, G, steps, V_old, thresholds):
    S = steps[:, None]
    V_new = numpy_prox(name, Y - S * G, thresholds)
    step, move = V_new - Y, V_new - V_old
    return (
        V_new,
        np.sum(G * step),
        np.sum(step**2 / S),
        -np.sum(step * move / S),
    )


def cases(quick: bool = False) -> Iterator[Case]:
    """Yield the cases: every method of every penalty at the shapes of V in a fit."""
    rng = np.random.default_rng(0)
    for k, m in SHAPES[-1:] if quick else SHAPES:
        Y, G, V_old = rng.standard_normal((3, k, m))
        V_new, steps = np.empty((k, m)), rng.uniform(0.5, 2, k)
        for name, kind in PENALTIES.items():
            penalty = kind()
            t = 0.3 * penalty.dual_norm(Y)
            thresholds, tau = t * steps, 0.1 * penalty.value(Y)
            for verb, run, peer in (
                (
                    "fista_update",
                    partial(
                        fista_update, penalty, Y, G, steps, V_old, V_new, thresholds=thresholds
                    ),
                    partial(numpy_update, name, Y, G, steps, V_old, thresholds),
                ),
                (
                    "prox",
                    partial(penalty.prox, Y, t),
                    partial(numpy_prox, name, Y, np.full(k, t)),
                ),
                (
                    "project",
                    partial(penalty.project, Y, tau),
                    partial(numpy_project, name, Y, tau),
                ),
            ):
                yield Case(
                    f"{verb} {name}",
                    f"k={k} m={m}",
                    lambda _, run=run: run(),
                    {"numpy": peer},
                    {"numpy": 3.0} if verb == "fista_update" else {},
                    bytes=8 * k * m * (4 if verb == "fista_update" else 2),
                    flops=(15 if verb == "fista_update" else 5) * k * m,
                    rtol=None if verb == "fista_update" else 1e-9,
                    threaded=False,
                )
