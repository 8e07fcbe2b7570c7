"""The model of a Newton step: descent sweeps, and their minimum against a plain solver."""

from unittest.mock import patch

import numpy as np
import pytest
import reference_penalties
import reference_refit as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fastpoly.kernels import quadratic
from fastpoly.kernels.penalties import PENALTIES, get_penalty
from fastpoly.kernels.quadratic import Quadratic, sweep

EVERY_PENALTY = pytest.mark.parametrize("name", sorted(PENALTIES))
FORMS = pytest.mark.parametrize("coupled", [False, True])


def model(k, m, coupled, seed, free=0):
    """B in one of the two forms and as the matrix (k m, k m) it stands for, P0, G0, weights."""
    rng = np.random.default_rng(seed)
    if coupled:
        root = rng.normal(size=(k * m + 3, k * m))
        full = root.T @ root + 0.1 * np.eye(k * m)
        B = full[None].copy()
    else:
        B, full = np.zeros((m, k, k)), np.zeros((k, m, k, m))
        for c in range(m):
            root = rng.normal(size=(k + 3, k))
            B[c] = full[:, c, :, c] = root.T @ root + 0.1 * np.eye(k)
        full = full.reshape(k * m, k * m)
    weights = np.ones(k)
    weights[k - free :] = 0
    P0, G0 = rng.normal(size=(2, k, m))
    return B, full, P0, 5 * G0, weights


def start(name, alpha, weights, P, G, B):
    """The model at its start."""
    return Quadratic(get_penalty(name), B, P, G, alpha * weights)


def value(name, full, P0, G0, thresholds, P):
    move = (P - P0).ravel()
    norms = reference_penalties.value(name, P, thresholds)
    return G0.ravel() @ move + 0.5 * move @ full @ move + norms


def solve(name, full, P0, G0, thresholds):
    def value_grad(P):
        move = (P - P0).ravel()
        slope = full @ move
        return float((G0.ravel() + 0.5 * slope) @ move), G0 + slope.reshape(P0.shape)

    return reference.fista(
        value_grad, lambda V, step: reference_penalties.prox(name, V, step * thresholds), P0
    )


@EVERY_PENALTY
@FORMS
@pytest.mark.parametrize(("k", "m", "free"), [(1, 1, 0), (6, 3, 0), (5, 2, 2), (3, 4, 3)])
@pytest.mark.parametrize("alpha", [0.0, 1.0, 20.0])
def test_minimum_of_the_model(name, coupled, k, m, free, alpha):
    B, full, P0, G0, weights = model(k, m, coupled, seed=k + m, free=free)
    with patch.object(quadratic, "LAST_ROUND_GAIN", 1e-20):
        P = start(name, alpha, weights, P0, G0, B).minimum()
    best = solve(name, full, P0, G0, alpha * weights)
    assert_allclose(P, best, atol=1e-7)
    reached = value(name, full, P0, G0, alpha * weights, P)
    assert reached <= value(name, full, P0, G0, alpha * weights, best) + 1e-12 * (1 + abs(reached))
    zero = ~best.any(axis=1)
    assert_array_equal(P[zero], 0)
    if alpha == 20.0 and not free and k > 1:
        assert zero.any()


@EVERY_PENALTY
@FORMS
def test_start_is_not_written_to(name, coupled):
    B, _, P0, G0, weights = model(4, 3, coupled, 0)
    copies = [a.copy() for a in (B, P0, G0)]
    start(name, 1.0, weights, P0, G0, B).minimum()
    for a, copy in zip((B, P0, G0), copies, strict=True):
        assert_array_equal(a, copy)


@EVERY_PENALTY
@settings(max_examples=40, deadline=None)
@given(
    coupled=st.booleans(),
    k=st.integers(1, 6),
    m=st.integers(1, 5),
    alpha=st.floats(0, 10),
    seed=st.integers(0, 2**32 - 1),
)
def test_a_sweep_descends_and_keeps_the_gradient(name, coupled, k, m, alpha, seed):
    B, full, P0, G0, weights = model(k, m, coupled, seed, free=seed % 2 if k > 1 else 0)
    first, thresholds, penalty = (
        start(name, alpha, weights, P0, G0, B),
        alpha * weights,
        get_penalty(name),
    )
    own, ungrouped = first.curvature, first.ungrouped
    for r in range(k):
        block = full.reshape(k, m, k, m)[r, :, r, :]
        assert_allclose(own[r], np.linalg.eigvalsh(block)[-1], rtol=1e-10)
    x, g = first.x, first.g
    before = value(name, full, P0, G0, thresholds, P0)
    for _ in range(2):
        sweep(penalty, B, own, thresholds, x, g)
        P, G = ungrouped(x), ungrouped(g)
        exact = G0.ravel() + full @ (P - P0).ravel()
        assert_allclose(G.ravel(), exact, rtol=1e-9, atol=1e-9)
        after = value(name, full, P0, G0, thresholds, P)
        assert after <= before + 1e-10 * (1 + abs(before))
        before = after


@EVERY_PENALTY
@FORMS
def test_one_sweep_by_hand(name, coupled):
    """Row by row: a proximal step with the row's own curvature, then the gradient at the others."""
    B, full, P0, G0, weights = model(3, 2, coupled, 3)
    first, t = start(name, 1.0, weights, P0, G0, B), np.array([0.5, 2.0, 0.0])
    own = first.curvature
    P, G = P0.copy(), G0.copy()
    for r in range(3):
        P[r] = reference_penalties.prox(name, (P[r] - G[r] / own[r])[None], [t[r] / own[r]])[0]
        G = G0 + (full @ (P - P0).ravel()).reshape(3, 2)
    sweep(get_penalty(name), B, own, t, first.x, first.g)
    assert_allclose(first.ungrouped(first.x), P, atol=1e-13)
    assert_allclose(first.ungrouped(first.g), G, atol=1e-12)


def test_dead_rows():
    """Where the smooth part does not depend on a row, the penalty makes it zero."""
    x, g = np.ones((1, 2)), np.zeros((1, 2))
    sweep(get_penalty("l1"), np.zeros((1, 2, 2)), [0.0, 0.0], [1.0, 0.0], x, g)
    assert_array_equal(x, [[0.0, 1.0]])
    assert_array_equal(g, 0.0)


def test_no_rows():
    for groups in (0, 1, 3):
        empty = np.empty((groups, 0))
        sweep(get_penalty("l1"), np.empty((groups, 0, 0)), [], [], empty, empty.copy())


def test_bad_input():
    penalty, one = get_penalty("l1"), np.ones(2)
    B, x, g = np.ones((3, 2, 2)), np.ones((3, 2)), np.ones((3, 2))
    read_only = x.copy()
    read_only.flags.writeable = False
    for error, says, args in [
        (ValueError, "B must have shape", (np.ones((3, 2, 3)), one, one, x, g)),
        (ValueError, "B must have shape", (np.ones((3, 3, 3)), one, one, x, g)),
        (ValueError, "B must have shape", (B, [], [], x, g)),
        (ValueError, "B must", (np.ones((2, 3)), one, one, x, g)),
        (ValueError, "x must be a float64 array of shape", (B, one, one, x[:1], g)),
        (ValueError, "x must be C-contiguous, aligned", (B, one, one, read_only, g)),
        (ValueError, "g must be a float64 array of shape", (B, one, one, x, g.T)),
        (ValueError, "thresholds must have shape", (B, one, np.ones(3), x, g)),
        (ValueError, "thresholds contains NaN", (B, one, [1.0, np.nan], x, g)),
        (ValueError, "share memory", (B, one, one, x, x)),
        (TypeError, "got None", (B, one, one, x, None)),
    ]:
        with pytest.raises(error, match=says):
            sweep(penalty, *args)
    with pytest.raises(TypeError):
        sweep(object(), B, one, one, x, g)
    with pytest.raises(ValueError, match="share memory"):
        sweep(penalty, B[:1], one, one, B[0, :1], np.ones((1, 2)))


@EVERY_PENALTY
@FORMS
@pytest.mark.parametrize("level", [1.0, 0.1])
def test_the_linear_system_points_down(name, coupled, level):
    """Every gain is checked, so a wrong step would only be slow; this tests the step itself."""
    B, full, P0, G0, weights = model(4, 3, coupled, 1)
    thresholds = 0.5 * weights
    descent = start(name, 0.5, weights, P0, G0, B)
    descent.sweep()
    move, P = (descent.ungrouped(x) for x in (descent.newton_step(level), descent.x))
    before, after = (value(name, full, P0, G0, thresholds, P + t * move) for t in (0, 1e-4))
    assert after < before
    # The step solves the system: the slope of the whole model is zero at its end. Curvature
    # between outputs is left out where B has none.
    g, d, a = get_penalty(name).smooth_model(P, level)
    free = np.isfinite(d)
    between = (a * move).sum(axis=1, keepdims=True) if coupled else a * move
    bend = np.where(free, d, 0.0) * move - a * between
    end = descent.ungrouped(descent.g) + (full @ move.ravel()).reshape(P.shape)
    end += thresholds[:, None] * (g + bend)
    assert_allclose(end[free], 0.0, atol=1e-9)
    assert_array_equal(move[~free], 0.0)
    # Without a penalty it ends at the minimum.
    P = P0 + descent.ungrouped(start(name, 0.0, weights, P0, G0, B).newton_step(level))
    assert_allclose(G0.ravel() + full @ (P - P0).ravel(), 0.0, atol=1e-9)


@pytest.mark.parametrize("name", ["l1", "l1/l2"])
@FORMS
def test_a_linear_system_always_gains(name, coupled):
    """The first smooth models of these norms are upper bounds."""
    B, _, P0, G0, weights = model(6, 3, coupled, 2)
    descent = start(name, 2.0, weights, P0, G0, B)
    for _ in range(5):
        before = descent.value
        gained = descent.solve(1.0)
        assert gained > 0
        assert_allclose(before - descent.value, gained, rtol=1e-6)
        assert_allclose(descent.value, descent.value_at(descent.x, descent.g), rtol=1e-12)
