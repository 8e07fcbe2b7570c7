"""Every loss of the registry: formulas, derivatives, convexity, smoothness, extremes, bad input."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from reference_losses import TWINS, whole_matrix
from scipy.optimize import minimize

from fastpoly import Design, conditional_gradient
from fastpoly.kernels import losses, runtime
from fastpoly.kernels.checks import encode_targets
from fastpoly.kernels.losses import LOSSES, Loss, complete_loss, get_loss
from fastpoly.kernels.verbs import loss_curvature

EVERY = pytest.mark.parametrize("name", sorted(LOSSES))
WIDTHS = [1, 2, 5, 7, 64, 70]


def problem(name, n, m, seed=0, spread=3.0):
    """A loss, random targets in its own form, outputs (n, m) and weights (n,), some of them 0."""
    rng = np.random.default_rng(seed)
    loss = LOSSES[name]()
    if loss.target == "label":
        y = rng.integers(0, m, n)
    elif loss.target == "sign":
        y = rng.choice([-1, 1], (n, m))
    elif name == "poisson":
        y = rng.poisson(2.0, (n, m))
    else:
        y = rng.normal(size=(n, m))
    w = rng.random(n) * (rng.random(n) < 0.8)
    return loss, loss.encode(y, m), spread * rng.normal(size=(n, m)), w


shapes = st.tuples(st.integers(0, 70), st.integers(1, 9), st.integers(0, 2**32 - 1))


# --- formulas ---


@EVERY
@pytest.mark.parametrize("m", WIDTHS)
@pytest.mark.parametrize("n", [0, 1, 3, 101])
def test_equals_the_formula(name, n, m):
    loss, Y, O, w = problem(name, n, m)
    for weights in (None, w):
        value, G, C = whole_matrix(name, Y, O, weights)
        got_value, got_G = loss.value_grad(Y, O, weights)
        assert_allclose(got_value, value, rtol=1e-13)
        assert_allclose(got_G, G, rtol=1e-12, atol=1e-15)
        assert_allclose(loss.value(Y, O, weights), value, rtol=1e-13)
        assert_allclose(loss.curvature(Y, O, weights), C, rtol=1e-12, atol=2e-15)
        assert got_G.shape == (n, m)


def test_every_loss_has_a_twin():
    assert set(TWINS) == set(LOSSES)


@EVERY
def test_rows_longer_than_any_buffer(name):
    loss, Y, O, _ = problem(name, 3, 1100)
    w = np.array([0.5, 2.0, 0.0])
    value, G, _ = whole_matrix(name, Y, O, w)
    assert_allclose(loss.value_grad(Y, O, w)[0], value, rtol=1e-12)
    assert_allclose(loss.value(Y, O, w), value, rtol=1e-12)
    assert_allclose(loss.value_grad(Y, O, w)[1], G, rtol=1e-10, atol=1e-15)


def row_by_row(loss, Y, O, w):
    """Value, gradient and curvature, with the weights applied here."""
    rows = [slice(i, i + 1) for i in range(len(O))]
    values, G = zip(*(loss.value_grad(Y[i], O[i]) for i in rows), strict=True)
    C = np.vstack([loss.curvature(Y[i], O[i]) for i in rows])
    return w @ values, w[:, None] * np.vstack(G), w[:, None] * C


@EVERY
@settings(max_examples=30, deadline=None)
@given(shape=shapes)
def test_vectorized_loops_equal_single_rows(name, shape):
    n, m, seed = shape
    loss, Y, O, w = problem(name, n + 1, m, seed)
    value, G, C = row_by_row(loss, Y, O, w)
    assert_allclose(loss.value_grad(Y, O, w)[0], value, rtol=1e-13, atol=1e-300)
    assert_allclose(loss.value_grad(Y, O, w)[1], G, rtol=1e-13, atol=1e-300)
    # p (1 - p) inherits the absolute error of p where p is near 1.
    assert_allclose(loss.curvature(Y, O, w), C, rtol=1e-12, atol=2e-15)


# --- derivatives ---


@EVERY
@settings(max_examples=15, deadline=None)
@given(m=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_gradient_by_central_differences(name, m, seed):
    loss, Y, O, w = problem(name, 3, m, seed, spread=2.0)
    G, h = loss.value_grad(Y, O, w)[1], 1e-5
    for i, c in np.ndindex(O.shape):
        step = np.zeros_like(O)
        step[i, c] = h
        slope = (loss.value(Y, O + step, w) - loss.value(Y, O - step, w)) / (2 * h)
        assert_allclose(G[i, c], slope, rtol=1e-6, atol=2e-5 * h + 1e-8)


@EVERY
@settings(max_examples=15, deadline=None)
@given(m=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_curvature_by_central_differences(name, m, seed):
    loss, Y, O, w = problem(name, 40, m, seed, spread=2.0)
    C, h = loss.curvature(Y, O, w), 1e-5
    for c in range(m):
        ends = O.copy(), O.copy()
        ends[0][:, c] += h
        ends[1][:, c] -= h
        (up, down), (c_up, c_down) = (
            [f(Y, end, w) for end in ends] for f in (_gradient(loss), loss.curvature)
        )
        smooth = np.abs(c_up - c_down)[:, c] < 1e-3  # no kink between the two ends
        slope = (up - down)[:, c] / (2 * h)
        assert smooth.mean() > 0.8
        assert_allclose(C[smooth, c], slope[smooth], rtol=1e-5, atol=1e-7)


def _gradient(loss):
    return lambda Y, O, w=None: loss.value_grad(Y, O, w)[1]


@EVERY
@settings(max_examples=50, deadline=None)
@given(
    m=st.integers(1, 8),
    seed=st.integers(0, 2**32 - 1),
    step=st.sampled_from([1e-2, 0.3, 1.0, 10.0]),
)
def test_convex_and_smooth(name, m, seed, step):
    loss, Y, A, _ = problem(name, 1, m, seed)
    B = A + step * np.random.default_rng(seed + 1).normal(size=A.shape)
    (at_a, G), at_b = loss.value_grad(Y, A), loss.value(Y, B)
    linear, distance = at_a + np.sum(G * (B - A)), np.sum((B - A) ** 2)
    slack = 1e-12 * (1 + abs(at_a) + abs(at_b))
    assert loss.value(Y, (A + B) / 2) <= (at_a + at_b) / 2 + slack
    assert at_b >= linear - slack
    assert at_b <= linear + loss.smoothness(m) / 2 * distance + slack
    assert at_a >= 0
    assert np.all(loss.curvature(Y, A) <= loss.smoothness(m) + 1e-15)


@EVERY
@pytest.mark.parametrize("m", [2, 5])
def test_smoothness_is_attained(name, m):
    """The largest eigenvalue of the Hessian reaches the bound at one of a few chosen points."""
    loss, h = LOSSES[name](), 1e-4
    Y = loss.encode([0] if loss.target == "label" else np.ones((1, m)), m)
    largest = 0.0
    for first in (0.0, 1.0):
        for rest in (0.0, -50.0):
            o = np.full((1, m), rest)
            o[0, :2] = first, 0.0
            hessian = [
                (loss.value_grad(Y, o + h * e)[1] - loss.value_grad(Y, o - h * e)[1])[0] / (2 * h)
                for e in np.eye(m)
            ]
            largest = max(largest, np.linalg.eigvalsh(hessian)[-1])
    if name == "poisson":  # the curvature grows with the outputs
        assert loss.smoothness(m) == np.inf
        assert_allclose(largest, np.exp(1.0), rtol=1e-5)
    else:
        assert_allclose(largest, loss.smoothness(m), rtol=1e-5)


def test_smoothness_as_documented():
    expected = {
        "multiclass_logistic": 0.5,
        "smoothed_multiclass_hinge": 0.5,
        "multiclass_squared_hinge": 14.0,
        "binary_logistic": 0.25,
        "smoothed_binary_hinge": 0.25,
        "binary_squared_hinge": 2.0,
        "squared": 1.0,
        "huber": 1.0,
        "poisson": np.inf,
    }
    assert {name: LOSSES[name]().smoothness(7) for name in LOSSES} == expected


# --- conjugate, Hessian, invariance ---


@EVERY
@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_conjugate_of_a_gradient(name, m, seed):
    """Fenchel and Young: l(o) + l*(g) = g'o where g is the gradient at o, weights included."""
    loss, Y, O, w = problem(name, 12, m, seed)
    for weights in (None, w):
        value, G = loss.value_grad(Y, O, weights)
        conjugate = loss.conjugate(Y, G, w=weights)
        size = value + abs(conjugate) + np.sum(np.abs(G * O))
        assert_allclose(value + conjugate, np.sum(G * O), atol=1e-12 * size)


@EVERY
@settings(max_examples=40, deadline=None)
@given(m=st.integers(1, 6), seed=st.integers(0, 2**32 - 1), scale=st.floats(0, 1))
def test_conjugate_bounds_the_loss_from_below(name, m, seed, scale):
    """l(o) >= c g'o - l*(c g) for all o, g the gradient anywhere and c in 0..1."""
    loss, Y, O, w = problem(name, 12, m, seed)
    G = loss.value_grad(Y, O, w)[1]
    conjugate = loss.conjugate(Y, G, scale, w)
    assert np.isfinite(conjugate)
    assert conjugate <= scale * loss.conjugate(Y, G, 1.0, w) + 1e-10  # convex, l*(0) <= 0
    assert_allclose(conjugate, loss.conjugate(Y, scale * G, w=w), rtol=1e-10, atol=1e-10)
    for spread in (0.1, 1.0, 5.0):
        other = O + spread * np.random.default_rng(seed + 1).normal(size=O.shape)
        value = loss.value(Y, other, w)
        assert value >= scale * np.sum(G * other) - conjugate - 1e-10 * (1 + value)


@EVERY
@pytest.mark.parametrize("m", [1, 2, 4])
def test_conjugate_by_maximization(name, m):
    loss, Y, O, w = problem(name, 3, m, seed=m)
    w += 0.3
    G = loss.value_grad(Y, O, w)[1]
    for scale in (0.2, 0.6, 0.95):

        def negative(o, scale=scale):
            value, D = loss.value_grad(Y, o.reshape(O.shape), w)
            return value - scale * np.sum(G * o.reshape(O.shape)), (D - scale * G).ravel()

        best = minimize(negative, O.ravel(), jac=True, method="BFGS", options={"gtol": 1e-9})
        assert_allclose(loss.conjugate(Y, G, scale, w), -best.fun, rtol=1e-7, atol=1e-9)


@EVERY
def test_conjugate_is_infinite_where_the_maximum_is(name):
    """Outside the domain, u'o - l(o) is unbounded in some direction."""
    m = 3
    loss, Y, *_ = problem(name, 1, m)
    unbounded = 0
    for u in np.random.default_rng(0).normal(size=(60, 1, m)):
        reached = [
            np.sum(u * o) - loss.value(Y, o)
            for t in (1e3, 1e6)
            for o in t * np.array([[s] for s in np.ndindex(3, 3, 3)]) - t
        ]
        half = len(reached) // 2
        if max(reached[half:]) > max(10 * max(reached[:half]), 1e3):
            unbounded += 1
            assert loss.conjugate(Y, u) == np.inf
        else:
            assert np.isfinite(loss.conjugate(Y, u)) or name not in ("squared",)
    assert (unbounded > 0) == (name != "squared")


@EVERY
@settings(max_examples=15, deadline=None)
@given(m=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_hessian(name, m, seed):
    """Differences of the gradient, packed in the order of triu_indices; positive semi-definite."""
    loss, Y, O, w = problem(name, 30, m, seed, spread=2.0)
    packed, h = loss.hessian(Y, O, w), 1e-5
    full = np.zeros((30, m, m))
    full[:, *np.triu_indices(m)] = packed
    full = np.maximum(np.abs(full), np.abs(full.transpose(0, 2, 1))) * np.sign(
        full + full.transpose(0, 2, 1)
    )
    gradient = _gradient(loss)
    for c, e in enumerate(np.eye(m)):
        ends = [O + h * e, O - h * e]
        kinks = np.abs(np.subtract(*(loss.curvature(Y, end, w) for end in ends))) >= 1e-3
        smooth = ~kinks.any(axis=1)
        assert smooth.mean() > 0.8
        slope = np.subtract(*(gradient(Y, end, w) for end in ends)) / (2 * h)
        assert_allclose(full[smooth, c], slope[smooth], rtol=1e-5, atol=1e-7)
    assert np.linalg.eigvalsh(full).min() >= -1e-12
    assert_allclose(np.einsum("icc->ic", full), loss.curvature(Y, O, w), rtol=1e-12, atol=1e-15)
    assert_array_equal(packed[w == 0], 0)


@EVERY
@settings(max_examples=20, deadline=None)
@given(m=st.integers(2, 6), seed=st.integers(0, 2**32 - 1), shift=st.floats(-5, 5))
def test_shift_invariance_is_declared(name, m, seed, shift):
    loss, Y, O, w = problem(name, 20, m, seed)
    same = np.isclose(loss.value(Y, O + shift, w), loss.value(Y, O, w), rtol=1e-11, atol=1e-12)
    if loss.shift_invariant:
        assert same
    elif abs(shift) > 0.1:
        assert not same


@pytest.mark.parametrize("name", ["multiclass_logistic", "smoothed_multiclass_hinge"])
@pytest.mark.parametrize("margin", [1.0, 20.0, 40.0, 300.0])
def test_hessian_of_a_perfect_fit_is_positive(name, margin):
    """Though the probability of the right class rounds to 1, its row still adds up to 0."""
    O = np.array([[margin, 0.0, -3.0], [1.0, margin, 0.5]])
    rows, columns = np.triu_indices(3)
    for packed in LOSSES[name]().hessian(np.array([[0.0], [1.0]]), O):
        H = np.empty((3, 3))
        H[rows, columns] = H[columns, rows] = packed
        largest = np.abs(H).max()
        assert largest > 0
        assert_allclose(H.sum(axis=1) / largest, 0, atol=1e-14)
        assert np.linalg.eigvalsh(H / largest).min() > -1e-14


def test_bad_input_of_conjugate_and_hessian():
    loss = get_loss("squared")
    for verb in (loss.hessian, loss.conjugate):
        with pytest.raises(ValueError, match="Y must have shape"):
            verb(np.ones((2, 2)), np.ones((3, 2)))
        with pytest.raises(ValueError, match="w must be non-negative"):
            verb(np.ones((3, 2)), np.ones((3, 2)), w=-np.ones(3))
    with pytest.raises(ValueError, match="not a class code"):
        get_loss("multiclass_logistic").hessian([[2.0]], [[0.0, 0.0]])


# --- extremes ---

# name: (y, o, value, gradient), all exact in float64
EXTREMES = [
    ("multiclass_logistic", 0, [-1e4, 1e4, -1e4], 2e4, [-1, 1, 0]),
    ("multiclass_logistic", 1, [-1e4, 1e4, -1e4], 0.0, [0, 0, 0]),
    ("multiclass_logistic", 1, [2.0**999, -(2.0**999)], 2.0**1000, [1, -1]),
    ("multiclass_logistic", 0, [123.0], 0.0, [0]),
    ("smoothed_multiclass_hinge", 0, [-1e4, 1e4, -1e4], 20001.0, [-1, 1, 0]),
    ("smoothed_multiclass_hinge", 1, [-1e4, 1e4, -1e4], 0.0, [0, 0, 0]),
    ("smoothed_multiclass_hinge", 0, [-7.0], 0.0, [0]),
    ("multiclass_squared_hinge", 0, [-1e4, 1e4, -1e4], 20001.0**2 + 1, [-40004, 40002, 2]),
    ("multiclass_squared_hinge", 1, [-1e4, 1e4, -1e4], 0.0, [0, 0, 0]),
    ("multiclass_squared_hinge", 0, [5.0], 0.0, [0]),
    ("binary_logistic", [1, -1, 1], [-1e4, 1e4, 1e4], 2e4, [-1, 1, 0]),
    ("binary_logistic", [-1, 1], [-(2.0**999), -(2.0**999)], 2.0**999, [0, -1]),
    ("smoothed_binary_hinge", [1, -1, 1], [-1e4, 1e4, 1e4], 20002.0, [-1, 1, 0]),
    ("binary_squared_hinge", [1, -1, 1], [-1e4, 1e4, 1e4], 2 * 10001.0**2, [-20002, 20002, 0]),
    ("squared", [0, 1e4], [1e4, -1e4], 0.5e8 + 2e8, [1e4, -2e4]),
    ("huber", [0, 1e4, 1.5], [1e4, -1e4, 2.0], 9999.5 + 19999.5 + 0.125, [1, -1, 0.5]),
    ("huber", [0], [2.0**999], 2.0**999, [1]),
    ("poisson", [0, 1, 1], [-1e4, 0.0, -1e4], 0.0 + 0.0 + 9999.0, [0, 0, -1]),
    ("poisson", [0, 3], [1e4, 0.0], np.inf, [np.inf, -2]),
]


@pytest.mark.parametrize(("name", "y", "o", "value", "gradient"), EXTREMES)
@pytest.mark.parametrize("n", [1, 32])
def test_exact_at_extremes(name, y, o, value, gradient, n):
    loss = LOSSES[name]()
    Y = loss.encode([y] * n, len(o))
    got, G = loss.value_grad(Y, [o] * n)
    assert got == n * value
    assert loss.value(Y, [o] * n) == n * value
    assert_array_equal(G, [gradient] * n)


def test_large_counts_have_no_negative_loss():
    """Terms of 1e13 cancel in a nearly perfect fit; a loss below zero is not a loss."""
    loss, y = LOSSES["poisson"](), 10.0 ** np.linspace(0, 12, 200)
    for off in (0.0, 1e-15, -1e-15, 1e-13, -1e-13, 1e-9):
        o = np.log(y) * (1 + off)
        assert min(loss.value([[y[i]]], [[o[i]]]) for i in range(200)) >= 0
    found = loss.value(y[:, None], np.log(y[:, None]) - 1e-3)
    assert_allclose(found, y.sum() * (np.expm1(-1e-3) + 1e-3), rtol=1e-6)


def test_extremes_cover_the_registry():
    assert {case[0] for case in EXTREMES} == set(LOSSES)


@pytest.mark.parametrize("n", [1, 32])
def test_tiny_losses_keep_their_digits(n):
    value, G = get_loss("multiclass_logistic").value_grad([[0]] * n, [[0.0, -50.0]] * n)
    assert_allclose(value, n * np.exp(-50), rtol=1e-14)
    assert_allclose(G, [[-np.exp(-50), np.exp(-50)]] * n, rtol=1e-14)
    value, G = get_loss("smoothed_multiclass_hinge").value_grad([[1]] * n, [[-50.0, 1.0]] * n)
    assert_allclose(value, n * np.exp(-50), rtol=1e-14)
    value, G = get_loss("binary_logistic").value_grad([[1.0]] * n, [[50.0]] * n)
    assert_allclose(value, n * np.exp(-50), rtol=1e-14)
    assert_allclose(G, [[-np.exp(-50)]] * n, rtol=1e-14)


@EVERY
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("m", [1, 3, 70])
def test_non_finite_outputs_stay_in_their_row(name, bad, m):
    loss, Y, O, w = problem(name, 70, m)
    w += 0.1
    reference = loss.value_grad(Y, O, w)[1]
    O[5] = bad
    value, G = loss.value_grad(Y, O, w)
    others = np.arange(70) != 5
    assert_allclose(G[others], reference[others], rtol=1e-14)
    if np.isnan(bad) and m > 1:
        assert np.isnan(value)
        assert np.isnan(loss.value(Y, O, w))
    w[5] = 0.0
    value, G = loss.value_grad(Y, O, w)
    assert np.isfinite(value)
    assert_array_equal(G[5], 0)
    assert_array_equal(loss.curvature(Y, O, w)[5], 0)
    assert loss.value(Y, O, w) == pytest.approx(value, rel=1e-14)


def _units_in_last_place(got, exact):
    spacing = np.spacing(np.abs(exact.astype(np.float64)))
    return np.abs(got - exact) / spacing


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="needs an extended precision type")
def test_exp_and_log1p_accuracy():
    """The logistic loss is log1p(e), and its gradient -e / (1 + e), with e = exp(-o)."""
    rng = np.random.default_rng(0)
    o = np.concatenate([rng.uniform(0, 700, 200_000), rng.exponential(size=200_000), np.zeros(1)])
    loss, e = get_loss("binary_logistic"), np.exp(-o.astype(np.longdouble))
    G = loss.value_grad(np.ones((len(o), 1)), o[:, None])[1][:, 0]
    assert _units_in_last_place(-G, e / (1 + e)).max() < 3
    values = np.array([loss.value([[1.0]], [[each]]) for each in o[::20]])
    assert _units_in_last_place(values, np.log1p(e[::20])).max() < 3
    for m in (2, 3, 1000):
        assert get_loss("multiclass_logistic").value([[0.0]], np.zeros((1, m))) == pytest.approx(
            np.log(m), rel=1e-15
        )


def test_exp_at_the_ends():
    """Where exp underflows, and where it does not yet."""
    o = np.array([np.inf, 1e308, 1e4, 746, 745.13, 5e-324, 0.0])
    G = get_loss("binary_logistic").value_grad(np.ones((7, 1)), o[:, None])[1][:, 0]
    assert_array_equal(-G, [0, 0, 0, 0, 5e-324, 0.5, 0.5])


# --- weights, sums, threads ---


@EVERY
@settings(max_examples=20, deadline=None)
@given(shape=shapes)
def test_integer_weights_are_repeated_rows(name, shape):
    n, m, seed = shape
    loss, Y, O, _ = problem(name, n, m, seed)
    w = np.random.default_rng(seed).integers(0, 4, n)
    rows = np.repeat(np.arange(n), w)
    value, G = loss.value_grad(Y, O, w)
    repeated, H = loss.value_grad(Y[rows], O[rows])
    assert_allclose(value, repeated, rtol=1e-12, atol=1e-300)
    sums = np.zeros_like(G)
    np.add.at(sums, rows, H)
    assert_allclose(G, sums, rtol=1e-12, atol=1e-300)
    C = loss.curvature(Y, O)
    assert_allclose(loss.curvature(Y, O, w), w[:, None] * C, rtol=1e-15)


@EVERY
def test_rows_of_weight_zero_are_ignored(name):
    loss, Y, O, w = problem(name, 100, 5)
    value, G = loss.value_grad(Y, O, w)
    changed = O.copy()
    changed[w == 0] = 1e308
    other_value, other_G = loss.value_grad(Y, changed, w)
    assert (w == 0).sum() > 5
    assert value == other_value
    assert_array_equal(G, other_G)
    assert_array_equal(G[w == 0], 0)


@EVERY
@pytest.mark.usefixtures("all_threads")
@pytest.mark.parametrize(("n", "m"), [(20_001, 5), (3_000, 70)])
def test_threads_give_the_same_bits(name, n, m):
    loss, Y, O, w = problem(name, n, m)
    value, G = loss.value_grad(Y, O, w, n_threads=1)
    for n_threads in (2, 3, 2, None):
        other, H = loss.value_grad(Y, O, w, n_threads=n_threads)
        assert other == value
        assert_array_equal(H, G)
    assert_allclose(value, row_by_row(loss, Y, O, w)[0], rtol=1e-12)


@EVERY
def test_a_million_rows_sum_accurately(name):
    n, block = 1_000_000, 1000
    loss, Y, O, _ = problem(name, block, 2)
    value = loss.value(np.tile(Y, (n // block, 1)), np.tile(O, (n // block, 1)))
    exact = whole_matrix(name, Y, O)[0] * (n // block)
    assert_allclose(value, exact, rtol=1e-13)


def test_baseline_instruction_set():
    """All numerical tests again, with the portable loops."""
    if os.environ.get("FASTPOLY_SIMD") == "baseline":
        assert runtime.simd_level() == "baseline"
        return
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", __file__]
    wanted = "formula or buffer or generic or exact or digits or exp_ or baseline or stay_in"
    env = os.environ | {"FASTPOLY_SIMD": "baseline"}
    run = subprocess.run([*command, "-k", wanted], env=env, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


# --- the Python interface ---


@EVERY
def test_storage_of_the_inputs_does_not_matter(name):
    loss, Y, O, w = problem(name, 40, 6)
    O = O.astype(np.float32).astype(float)
    value, G = loss.value_grad(Y, O, w)
    spaced = np.zeros((80, 12))
    spaced[::2, ::2] = O
    bytes_ = np.zeros(O.nbytes + 1, dtype=np.uint8)
    misaligned = bytes_[1:].view(float).reshape(O.shape)
    misaligned[:] = O
    for same in (
        np.asfortranarray(O),
        spaced[::2, ::2],
        O.astype(np.float32),
        O.astype(">f8"),
        O.tolist(),
        misaligned,
    ):
        other, H = loss.value_grad(Y, same, w)
        assert other == value
        assert_array_equal(H, G)
        assert_array_equal(loss.curvature(Y, same, w), loss.curvature(Y, O, w))
    for a in (Y, O, w):
        a.flags.writeable = False
    assert loss.value_grad(Y, O, w)[0] == value
    assert loss.value(Y.tolist(), O, w.tolist()) == loss.value(Y, O, w)


@EVERY
def test_out_is_used(name):
    loss, Y, O, w = problem(name, 40, 6)
    out = np.full_like(O, np.nan)
    assert loss.value_grad(Y, O, w, out=out)[1] is out
    assert_array_equal(out, loss.value_grad(Y, O, w)[1])
    assert loss.curvature(Y, O, w, out=out) is out
    assert_array_equal(out, loss.curvature(Y, O, w))


def test_encode():
    label, sign, real = (get_loss(k) for k in ("multiclass_logistic", "binary_logistic", "squared"))
    assert_array_equal(label.encode([2, 0, 1], 3), [[2.0], [0.0], [1.0]])
    assert_array_equal(label.encode(np.array([[1.0], [0.0]])), [[1.0], [0.0]])
    assert_array_equal(sign.encode([1, -1]), [[1.0], [-1.0]])
    assert_array_equal(sign.encode([[1, -1]], 2), [[1.0, -1.0]])
    assert_array_equal(real.encode([1, 2]), [[1.0], [2.0]])
    for loss in (label, sign, real):
        Y = loss.encode([1, 1, 1])
        assert Y.dtype == np.float64
        assert Y.flags.c_contiguous
        assert_array_equal(loss.encode(Y), Y)
        assert loss.encode([]).shape == (0, 1)


@pytest.mark.parametrize(
    ("target", "y", "n_outputs", "error", "says"),
    [
        ("label", [0, 3], 3, ValueError, "holds 3.*0 .. 2.*np.unique"),
        ("label", [0, -1], 3, ValueError, "holds -1"),
        ("label", [0, -1], None, ValueError, "holds -1"),
        ("label", [0.5], 3, ValueError, "holds 0.5"),
        ("label", [2**40], None, ValueError, "holds 1.09"),
        ("label", ["a", "b"], 2, TypeError, "np.unique"),
        ("label", [[0, 1]], 2, ValueError, "shape"),
        ("label", [np.nan], 2, ValueError, "NaN"),
        ("sign", [0, 1], None, ValueError, "holds 0.*-1 or \\+1.*np.where"),
        ("sign", [[1, -1]], 3, ValueError, "shape"),
        ("sign", np.ones((2, 0)), None, ValueError, "at least one column"),
        ("real", [np.inf], None, ValueError, "infinity"),
        ("real", [1j], None, TypeError, "complex"),
        ("real", np.ones((2, 2, 2)), None, ValueError, "dimension"),
        ("real", 3.0, None, ValueError, "dimension"),
        ("real", [1.0], 0, ValueError, "n_outputs"),
        ("real", [1.0], 1.5, TypeError, "n_outputs"),
        ("real", [1.0], True, TypeError, "n_outputs"),
        ("label", np.ma.masked_less([0, 1], 1), 2, ValueError, "^y has masked entries"),
        ("real", [[1.0], [1.0, 2.0]], None, ValueError, "^y must be a rectangular array"),
        ("color", [1.0], 1, ValueError, "label.*sign.*real"),
    ],
)
def test_encode_refuses(target, y, n_outputs, error, says):
    with pytest.raises(error, match=says):
        encode_targets(target, y, n_outputs)


@pytest.mark.parametrize("call", ["value", "value_grad", "curvature"])
@pytest.mark.parametrize(
    ("Y", "O", "w", "error", "says"),
    [
        ([[3]], np.ones((1, 3)), None, ValueError, "holds 3.*0 .. 2"),
        ([[-1]], np.ones((1, 3)), None, ValueError, "holds -1"),
        ([[-0.5]], np.ones((1, 3)), None, ValueError, "holds -0.5"),
        ([[np.nan]], np.ones((1, 3)), None, ValueError, "NaN"),
        ([[0, 1]], np.ones((1, 3)), None, ValueError, "Y must have shape"),
        ([0], np.ones((1, 3)), None, ValueError, "Y must have 2"),
        ([[0], [0]], np.ones((1, 3)), None, ValueError, "Y must have shape"),
        ([[0]], np.ones(3), None, ValueError, "O must have 2"),
        ([[0]], None, None, TypeError, "O must hold real numbers"),
        (None, np.ones((1, 3)), None, TypeError, "Y must hold real numbers"),
        ([[0]], np.ones((1, 0)), None, ValueError, "at least one column"),
        ([[0]], [["a"]], None, TypeError, "O must hold real numbers"),
        ([[0]], np.ones((1, 3), dtype=complex), None, TypeError, "O must hold real numbers"),
        ([[0]], np.ones((1, 3), dtype=object), None, TypeError, "O must hold real numbers"),
        ([[0]], np.ones((1, 3)), [-1.0], ValueError, "non-negative"),
        ([[0]], np.ones((1, 3)), [np.nan], ValueError, "w contains NaN"),
        ([[0]], np.ones((1, 3)), [np.inf], ValueError, "w contains NaN or infinity"),
        ([[0]], np.ones((1, 3)), [1.0, 1.0], ValueError, "w must have shape"),
        ([[0]], np.ones((1, 3)), 1.0, ValueError, "w must have 1 dimension"),
        ([[0]], np.ones((1, 3)), [[1.0]], ValueError, "w must have 1 dimension"),
    ],
)
def test_bad_arrays(call, Y, O, w, error, says):
    with pytest.raises(error, match=says):
        getattr(get_loss("multiclass_logistic"), call)(Y, O, w)


def test_bad_out_and_threads():
    loss, Y, O, w = problem("squared", 4, 3)
    read_only = np.empty((4, 3))
    read_only.flags.writeable = False
    for out in (
        np.empty((3, 4)),
        np.empty((4, 3), np.float32),
        read_only,
        np.empty((4, 6))[:, ::2],
    ):
        with pytest.raises(ValueError, match="out must be"):
            loss.value_grad(Y, O, w, out=out)
    for overlapping in (O, Y):
        with pytest.raises(ValueError, match="must not overlap"):
            loss.value_grad(Y, O, w, out=overlapping)
    both = np.zeros((5, 3))
    with pytest.raises(ValueError, match="must not overlap"):
        loss.curvature(Y, both[1:], out=both[:-1])
    with pytest.raises(ValueError, match="n_threads"):
        loss.value_grad(Y, O, n_threads=0)
    with pytest.raises(ValueError, match="Y must have shape"):
        loss.check_targets(Y, 4)
    with pytest.raises(ValueError, match="n_outputs"):
        loss.smoothness(0)


@EVERY
def test_equivariant_losses(name):
    """The attribute says whether l(a y + b, a o + b) = a^2 l(y, o)."""
    loss, Y, O, w = problem(name, 20, 3)
    value = loss.value(Y, O, w)
    if loss.target == "real":
        holds = loss.value(2 * Y + 3, 2 * O + 3, w) == pytest.approx(4 * value)
        assert loss.equivariant == holds
    else:
        assert not loss.equivariant


def test_verbs_that_a_loss_lacks():
    """They say "not known", as those of a compiled loss that defines only `row`."""
    Y, O = np.zeros((4, 2)), np.ones((4, 2))
    loss = complete_loss(Absolute())
    assert complete_loss(get_loss("squared")) == get_loss("squared")
    for each in (loss, complete_loss(loss), pickle.loads(pickle.dumps(loss))):
        assert each.value(Y, O) == 8
        assert each.target == "real"
        assert np.isinf(each.curvature(Y, O)).all()
        assert np.isnan(each.conjugate(Y, O))
        assert each.hessian is None
        assert not each.shift_invariant
        assert not each.equivariant
        assert_array_equal(each.encode([1.0, 2.0]), [[1.0], [2.0]])
    C = loss_curvature(loss, Y, O, np.arange(4.0))  # its smoothness is infinite, too
    assert_array_equal(C, np.arange(4.0)[:, None] * np.ones(2))
    squared = get_loss("squared")
    assert_array_equal(loss_curvature(squared, Y, O, None), squared.curvature(Y, O))
    own = Absolute()
    own.curvature = lambda Y, O, w=None: 7 * np.ones_like(O)
    assert (complete_loss(own).curvature(Y, O) == 7).all()


@EVERY
def test_registry_names_and_identity(name):
    loss = get_loss(name)
    assert type(loss) is LOSSES[name]
    assert loss.name == name
    assert get_loss(loss) is loss
    assert loss == LOSSES[name]()
    assert hash(loss) == hash(LOSSES[name]())
    assert pickle.loads(pickle.dumps(loss)) == loss
    assert [other for other in LOSSES if get_loss(other) == loss] == [name]


class Absolute:
    """A user's loss, in plain Python."""

    target = "real"

    def value(self, Y, O, w=None):
        return float(np.sum(np.abs(O - Y)))

    def value_grad(self, Y, O, w=None, out=None, n_threads=1):
        return self.value(Y, O, w), np.sign(O - Y)

    def smoothness(self, n_outputs):
        return np.inf


def test_get_loss():
    own = Absolute()
    assert get_loss(own).given is own
    with pytest.raises(ValueError, match=r"unknown loss 'hinge'.*binary_logistic.*squared"):
        get_loss("hinge")
    with pytest.raises(TypeError, match=r"write Squared\(\)"):
        get_loss(LOSSES["squared"])
    for nonsense in (None, 3, object()):
        with pytest.raises(TypeError, match="value_grad"):
            get_loss(nonsense)
    own.target = "color"
    with pytest.raises(TypeError, match="target"):
        get_loss(own)


def test_a_loss_without_a_bound_says_so():
    assert Loss().smoothness(3) == np.inf
    assert_array_equal(Loss().curvature([[0.0]], [[0.0]]), [[np.inf]])
    assert np.isnan(Loss().value([[0.0]], [[0.0]]))


def test_python_classes_that_replace_compiled_verbs_are_refused():
    """The compiled passes would not call them."""

    class Steeper(losses.Squared):
        def value_grad(self, Y, O, w=None):
            value, gradient = super().value_grad(Y, O, w)
            return 2 * value, 2 * gradient

    class Flagged(losses.Squared):
        equivariant = False

    for cls, verb in ((Steeper, "value_grad"), (Flagged, "equivariant")):
        with pytest.raises(TypeError, match=f"replaces `{verb}` of Squared.*does not inherit"):
            complete_loss(cls())
        with pytest.raises(TypeError, match=f"replaces `{verb}` of Squared"):
            conditional_gradient(Design(np.eye(3)), np.eye(3), loss=cls())

    class Same(losses.Squared):
        unit = "kg"

    same = Same()
    assert complete_loss(same) is same
