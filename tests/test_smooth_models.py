"""The smooth models of the norms, which Newton's linear systems have in place of the penalty."""

import numpy as np
import pytest
import reference_penalties
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fastpoly.kernels.penalties import PENALTIES, Penalty, get_penalty

EVERY_PENALTY = pytest.mark.parametrize("name", sorted(PENALTIES))
SHAPES = {"k": st.integers(1, 4), "m": st.integers(1, 6), "seed": st.integers(0, 2**31)}


def matrix(k, m, seed):
    """Rows of all kinds: dense, with zeros, with ties of different signs, zero."""
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((k, m)) * 10.0 ** rng.integers(-30, 30, (k, 1))
    V[rng.random((k, m)) < 0.2] = 0
    for r in range(0, k, 2):
        tied = rng.random(m) < 0.5
        V[r, tied] = np.abs(V[r]).max() * rng.choice([-1, 1], tied.sum())
    V[rng.random(k) < 0.1] = 0
    return V


def interior(v, s, mu):
    """s - mu sum_c log(s^2 - v_c^2), whose least value over s is the smooth norm of l1/linf."""
    return s - mu * np.log(s * s - v * v).sum()


@EVERY_PENALTY
@settings(max_examples=100, deadline=None)
@given(level=st.sampled_from([1e-12, 1e-3, 1.0]), **SHAPES)
def test_slope_is_nearly_a_subgradient_and_curvature_convex(name, level, k, m, seed):
    V, penalty = matrix(k, m, seed), get_penalty(name)
    g, d, a = penalty.smooth_model(V, level)
    norms = penalty.row_norms(V)
    for r in range(k):
        assert penalty.dual_norm(g[r : r + 1]) <= 1 + 1e-12
        # g'v = ||v|| for a subgradient; the interior point is at (1 + level / 10) ||v||.
        assert_allclose(g[r] @ V[r], norms[r], rtol=0.2 * level * m + 1e-9)
        free = np.isfinite(d[r])
        assert not V[r, ~free].any()
        assert_array_equal(a[r, ~free], 0)
        H = (np.diag(d[r, free]) - np.outer(a[r, free], a[r, free])) * norms[r]
        if H.size:
            rounding = 1e-12 * (d[r, free] * norms[r]).max()
            assert np.linalg.eigvalsh(H)[0] >= -rounding


@pytest.mark.parametrize("name", ["l1", "l1/l2"])
@settings(max_examples=100, deadline=None)
@given(**SHAPES)
def test_bounds_from_above(name, k, m, seed):
    """A step to the minimum of the model then never raises the objective."""
    V = matrix(k, m, seed)
    g, d, a = get_penalty(name).smooth_model(V, 1.0)
    assert not a.any()
    scale = np.abs(V).max(axis=1, keepdims=True)
    move = scale * np.random.default_rng(seed).standard_normal(V.shape)
    move[~np.isfinite(d)] = 0
    quadratic = np.where(move != 0, np.where(np.isfinite(d), d, 0) * move**2 / 2, 0)
    bound = (reference_penalties.value(name, V) + (g * move + quadratic).sum()).item()
    assert reference_penalties.value(name, V + move) <= bound * (1 + 1e-9)


@settings(max_examples=50, deadline=None)
@given(level=st.sampled_from([0.1, 0.5, 1.0]), m=st.integers(2, 6), seed=st.integers(0, 2**31))
def test_linf_is_that_of_an_interior_point(level, m, seed):
    """Slope and curvature by central differences of the least value over s."""
    rng = np.random.default_rng(seed)
    v = rng.uniform(-1, 1, m)
    v[rng.integers(m)] = 1.0
    s = 1 + level / 10
    mu = 1 / (2 * s / (s * s - v * v)).sum()

    def smooth(u):
        best = s
        for _ in range(50):  # Newton's method for the best s, which is near the start
            slope = 1 - mu * (2 * best / (best**2 - u**2)).sum()
            bend = mu * (2 * (best**2 + u**2) / (best**2 - u**2) ** 2).sum()
            best -= slope / bend
        return interior(u, best, mu)

    g, d, a = (x[0] for x in get_penalty("l1/linf").smooth_model(v[None], level))
    move, t = rng.standard_normal(m), 1e-4 * level
    ends = [smooth(v + sign * t * move) for sign in (-1, 0, 1)]
    assert_allclose((ends[2] - ends[0]) / (2 * t), g @ move, rtol=1e-3, atol=1e-3)
    curvature = d @ move**2 - (a @ move) ** 2
    assert_allclose((ends[0] - 2 * ends[1] + ends[2]) / t**2, curvature, rtol=1e-2, atol=1e-2)


@EVERY_PENALTY
def test_with_one_output_all_norms_are_equal(name):
    V = np.array([[2.0], [-0.5], [0.0]])
    for got, want in zip(
        get_penalty(name).smooth_model(V, 1.0), PENALTIES["l1"]().smooth_model(V, 1.0), strict=True
    ):
        assert_array_equal(got, want)


@pytest.mark.parametrize("name", ["l1", "l1/l2"])
def test_level_zero_is_the_norm_itself(name):
    """Slope and curvature by central differences, away from the kinks."""
    rng = np.random.default_rng(0)
    v = rng.uniform(0.5, 2.0, 4) * rng.choice([-1, 1], 4)
    g, d, a = (x[0] for x in get_penalty(name).smooth_model(v[None], 0.0))
    move, t = rng.standard_normal(4), 1e-4
    ends = [reference_penalties.value(name, (v + s * t * move)[None]) for s in (-1, 0, 1)]
    assert_allclose((ends[2] - ends[0]) / (2 * t), g @ move, rtol=1e-6)
    curvature = d @ move**2 - (a @ move) ** 2
    assert_allclose((ends[0] - 2 * ends[1] + ends[2]) / t**2, curvature, rtol=1e-4, atol=1e-6)


def test_a_penalty_need_not_have_one():
    class Own(Penalty):
        pass

    assert Own().smooth_model(np.ones((2, 2)), 0.1) is None
