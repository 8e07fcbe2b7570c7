"""Where the norms of the penalties are smooth: what Newton's method asks of them."""

import numpy as np
import pytest
import reference_penalties
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fastpoly.kernels.penalties import PENALTIES, get_penalty

EVERY_PENALTY = pytest.mark.parametrize("name", sorted(PENALTIES))


def matrix(k, m, seed):
    """Rows of all kinds: dense, with zeros, with ties of different signs, zero."""
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((k, m))
    V[rng.random((k, m)) < 0.2] = 0
    for r in range(0, k, 2):
        tied = rng.random(m) < 0.5
        V[r, tied] = np.abs(V[r]).max() * rng.choice([-1, 1], tied.sum())
    V[rng.random(k) < 0.1] = 0
    return V


def along(name, V, seed):
    """A move that keeps zeros and ties."""
    move = np.random.default_rng(seed + 1).standard_normal(V.shape)
    move[V == 0] = 0
    for r, tied in enumerate(get_penalty(name).ties(V)):
        move[r, tied] = np.sign(V[r, tied]) * np.random.default_rng(seed + r).standard_normal()
    return move


@EVERY_PENALTY
@settings(max_examples=50, deadline=None)
@given(k=st.integers(1, 4), m=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_bend_is_the_second_derivative(name, k, m, seed):
    V = matrix(k, m, seed)
    move = along(name, V, seed)
    penalty, t = get_penalty(name), 1e-4
    assume(min(penalty.reach(V, move), penalty.reach(V, -move)) > 1e-3)
    assume((np.linalg.norm(V, axis=1)[V.any(axis=1)] > 0.1).all())
    ends = [reference_penalties.value(name, V + s * t * move) for s in (-1, 0, 1)]
    norms = np.linalg.norm(V, axis=1)
    u = V / np.where(norms > 0, norms, 1)[:, None]
    across = (move**2).sum(axis=1) - (u * move).sum(axis=1) ** 2
    expected = float(penalty.bend(V) @ across)
    assert_allclose((ends[0] - 2 * ends[1] + ends[2]) / t**2, expected, rtol=1e-3, atol=1e-4)


@EVERY_PENALTY
@settings(max_examples=100, deadline=None)
@given(k=st.integers(1, 4), m=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_a_step_within_reach_needs_no_retraction(name, k, m, seed):
    V = matrix(k, m, seed)
    penalty, move = get_penalty(name), 3 * along(name, V, seed)
    reach = penalty.reach(V, move)
    assert 0 <= reach <= 1
    within = V + 0.999 * reach * move
    assert_allclose(penalty.retract(V, within), within, rtol=1e-12, atol=1e-14)
    if reach < 1:
        beyond = V + 1.01 * reach * move
        assert not np.allclose(penalty.retract(V, beyond), beyond, rtol=1e-9, atol=1e-12)


@EVERY_PENALTY
@settings(max_examples=50, deadline=None)
@given(k=st.integers(1, 4), m=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_retraction_keeps_signs_and_the_largest(name, k, m, seed):
    V = matrix(k, m, seed)
    new = V + np.random.default_rng(seed).standard_normal(V.shape)
    got = get_penalty(name).retract(V, new)
    if name == "l1/l2":
        assert_array_equal(got, new)
    if name == "l1":
        assert (got * V >= 0).all()
    if name == "l1/linf":
        ties = get_penalty(name).ties(V)
        assert (np.abs(got)[ties] >= np.abs(got).max(axis=1)[ties.nonzero()[0]]).all()
        assert (got[ties] * V[ties] >= 0).all()


def test_ties_of_the_largest_entries():
    V = np.array([[1.0, -1.0, 0.5], [0.0, 0.0, 0.0], [2.0, 3.0, 1.0]])
    assert_array_equal(get_penalty("l1/linf").ties(V), [[1, 1, 0], [0, 0, 0], [0, 1, 0]])
    assert not get_penalty("l1").ties(V).any()
    assert not get_penalty("l1/l2").ties(V).any()
