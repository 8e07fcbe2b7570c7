"""The fused FISTA step of every registered penalty against its unfused lines."""

import numpy as np
import pytest
import reference_penalties as reference
from numpy.testing import assert_allclose
from reference_penalties import Plain, assert_is_prox

from fastpoly.kernels.penalties import L1, PENALTIES, fista_update, get_penalty

WIDTHS = (1, 2, 5, 7, 64, 70)

each_penalty = pytest.mark.parametrize(
    "penalty", [get_penalty(name) for name in PENALTIES], ids=str
)


def fista_example(k, m, seed=0):
    rng = np.random.default_rng(seed)
    Y, G, V_old = rng.standard_normal((3, k, m))
    steps, weights = rng.uniform(0.2, 2, (2, k))
    for a in (Y, G, V_old, steps, weights):
        a.flags.writeable = False
    return Y, G, steps, V_old, weights


@each_penalty
@pytest.mark.parametrize("make", [lambda penalty: penalty, Plain], ids=["fused", "plain"])
@pytest.mark.parametrize("k", [0, 1, 9])
@pytest.mark.parametrize("m", WIDTHS)
def test_fista_update_equals_the_unfused_lines(penalty, make, k, m):
    Y, G, steps, V_old, weights = fista_example(k, m, seed=m)
    thresholds = 0.2 * penalty.dual_norm(Y) * steps * weights
    thresholds[:1] = 0
    tau = 0.3 * penalty.value(Y, weights) or 1.0
    V_new = np.empty((k, m))
    for form in ({"thresholds": thresholds}, {"tau": tau}, {"tau": tau, "weights": weights}):
        sums = fista_update(make(penalty), Y, G, steps, V_old, V_new, **form)
        V_twin, twin = reference.fista_update(penalty.name, Y, G, steps, V_old, **form)
        assert_allclose(V_new, V_twin, atol=1e-11)
        assert_allclose(sums, twin, rtol=1e-10, atol=1e-10)
        assert sums == (sums.linear, sums.quadratic, sums.restart)


@each_penalty
@pytest.mark.parametrize("make", [lambda penalty: penalty, Plain], ids=["fused", "plain"])
def test_fista_update_leaves_rows_of_weight_zero_free(penalty, make):
    Y, G, steps, V_old, weights = fista_example(7, 4)
    weights = np.where(np.arange(7) == 3, 0, weights)
    V_new, rest = np.empty((7, 4)), np.arange(7) != 3
    fista_update(make(penalty), Y, G, steps, V_old, V_new, tau=0.5, weights=weights)
    Z = Y - steps[:, None] * G
    assert_allclose(V_new[3], Z[3])
    expected = penalty.project(Z[rest], 0.5, weights[rest], 1 / steps[rest])
    assert_allclose(V_new[rest], expected, atol=1e-13)
    assert_allclose(penalty.value(V_new[rest], weights[rest]), 0.5)
    # A ball so small that its multiplier is all rounding: the free row must not be rescaled.
    fista_update(make(penalty), Y, G, steps, V_old, V_new, tau=1e-25, weights=weights)
    assert_allclose(V_new[3], Z[3])


@each_penalty
@pytest.mark.parametrize("m", range(1, 30))
def test_fista_update_never_grows_a_row_of_ties(penalty, m):
    """Thresholds below rounding: the mean of equal entries may round above them."""
    Y, zero = np.full((1, m), 0.1), np.zeros((1, m))
    V_new = np.empty((1, m))
    tiny = np.full(1, 1e-20)
    fista_update(penalty, Y, zero, np.ones(1), zero, V_new, thresholds=tiny)
    assert penalty.value(V_new) <= penalty.value(Y)
    assert np.max(V_new) <= 0.1


@each_penalty
def test_fista_update_descends_on_a_quadratic(penalty):
    """1/2 |V - T|^2 in the metric 1 / steps has its minimum one step away, for any Y."""
    Y, T, steps, V_old, weights = fista_example(6, 3)
    V_new = np.empty_like(Y)
    G = (Y - T) / steps[:, None]
    sums = fista_update(penalty, Y, G, steps, V_old, V_new, thresholds=0.3 * steps * weights)
    assert_is_prox(penalty, T, 0.3 * steps * weights, V_new)

    def loss(V):
        return 0.5 * np.sum((V - T) ** 2 / steps[:, None])

    assert_allclose(loss(V_new), loss(Y) + sums.linear + sums.quadratic / 2)


def test_fista_update_restart_points_back():
    """Positive exactly when the step from Y goes against the last move."""
    zero, ones = np.zeros((1, 1)), np.ones(1)
    V_new = np.empty((1, 1))
    for Y, G, wanted in ((1.0, 1.5, 1), (1.0, -1.5, -1)):
        # From V_old = -2: past the minimum the gradient turns against the move, before it not.
        sums = fista_update(L1(), zero + Y, zero + G, ones, zero - 2, V_new, thresholds=zero[0])
        assert np.sign(sums.restart) == wanted


@each_penalty
def test_fista_update_shows_bad_entries_and_ends(penalty):
    for bad in (np.nan, np.inf):
        Y, G, steps, V_old, _ = (a.copy() for a in fista_example(3, 4))
        G[1, 2] = bad
        for form in ({"thresholds": steps}, {"tau": 0.1}):
            sums = fista_update(penalty, Y, G, steps, V_old, np.empty((3, 4)), **form)
            assert not np.isfinite(sums.linear)


def test_fista_update_refuses_bad_arguments():
    Y, G, steps, V_old, weights = fista_example(3, 4)
    V_new = np.empty((3, 4))

    def run(Y=Y, G=G, steps=steps, V_old=V_old, V_new=V_new, **form):
        return fista_update(L1(), Y, G, steps, V_old, V_new, **(form or {"tau": 1.0}))

    run(Y=Y.tolist(), G=np.asfortranarray(G), steps=steps.astype(np.float32))
    with pytest.raises(ValueError, match="G must have shape"):
        run(G=G[:2])
    with pytest.raises(ValueError, match="steps must have shape"):
        run(steps=steps[:2])
    with pytest.raises(TypeError, match="V_old must hold real numbers"):
        run(V_old=V_old.astype(complex))
    with pytest.raises(ValueError, match="either thresholds"):
        run(thresholds=steps, tau=1.0)
    with pytest.raises(ValueError, match="either thresholds"):
        run(weights=weights)
    with pytest.raises(ValueError, match="with tau only"):
        run(thresholds=steps, weights=weights)
    with pytest.raises(ValueError, match="steps must be > 0"):
        run(steps=0 * steps)
    for bad in (-steps, np.nan * steps):
        with pytest.raises(ValueError, match=">= 0"):
            run(thresholds=bad)
        with pytest.raises(ValueError, match=">= 0"):
            run(tau=1.0, weights=bad)
    with pytest.raises(ValueError, match="tau"):
        run(tau=0.0)
    for out in (Y, V_new.T, V_new.astype(np.float32), None, [[0.0]]):
        with pytest.raises(ValueError, match="V_new must be"):
            run(V_new=out)
    block = np.zeros((6, 4))
    for shared in ("Y", "G", "V_old"):
        with pytest.raises(ValueError, match="share memory"):
            run(**{shared: block[:3]}, V_new=block[2:5])
    run(Y=block[:3], V_new=block[3:])
