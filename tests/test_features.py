"""Activations against brute force, their gradient against finite differences."""

import doctest
import tracemalloc

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from fastpoly.kernels import features
from fastpoly.kernels.features import (
    ACTIVATIONS,
    CsrFeatures,
    DenseFeatures,
    Features,
    make_features,
)
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.matrix import as_matrix

pytestmark = pytest.mark.usefixtures("all_threads")

WIDTHS = (1, 2, 5, 7, 64, 70)
STORAGE = {"dense": np.asarray, "csr": sp.csr_array}
check = settings(max_examples=40, deadline=None, derandomize=True)
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)
each_storage = pytest.mark.parametrize("storage", STORAGE)


def data(n, d, rng, dtype=np.float64):
    """Rows with a third of the entries; the first and the last row are empty."""
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.35)
    X[[0, -1]] = 0
    return X.astype(dtype)


def problem(storage, augment, k, m, n=60, d=9, dtype=np.float64, seed=0):
    """The Matrix, its dense twin, H (k, d), V (k, m), D (n, m), M (n, k)."""
    rng = np.random.default_rng([seed, k, m])
    X = data(n, d, rng, dtype)
    H = rng.standard_normal((k, d + augment))
    shapes = ((k, m), (n, m), (n, k))
    rest = (rng.standard_normal(shape) for shape in shapes)
    return as_matrix(STORAGE[storage](X), augment), reference.dense_of(X, augment), H, *rest


def everything():
    """Results of all verbs by name, to be compared between two processes."""
    results = {}
    for storage in STORAGE:
        for activation in ACTIVATIONS:
            for dtype in (np.float32, np.float64):
                X, _, H, V, D, M = problem(storage, True, 7, 5, dtype=dtype)
                f = make_features(X, H, activation)
                name = f"features-{storage}-{activation}-{dtype.__name__}-"
                results[name + "activations"] = f.activations()
                results[name + "outputs"] = f.outputs(V)
                results[name + "pullback"] = f.pullback(D)
                results[name + "basis_grad"] = f.basis_grad(M)
                results[name + "basis_grad_outputs"] = f.basis_grad_outputs(V, D)
                results[name + "linear"] = LinearTerms(X).outputs(H.T)
                results[name + "linear_grad"] = LinearTerms(X).grad(D)
    return results


def close(have, want, rtol=1e-12):
    assert have.shape == want.shape
    assert have.dtype == np.float64
    assert_allclose(have, want, rtol=rtol, atol=rtol * np.abs(want).max(initial=1))


def assert_verbs(f, Z, H, V, D, M, activation):
    """All verbs of the Features f against the dense rows Z."""
    S = reference.fast_activations(Z, H, activation)
    P = Z @ H.T
    close(f.activations(), S)
    close(f.outputs(V), S @ V)
    close(f.pullback(D), S.T @ D)
    for weights, have in ((M, f.basis_grad(M)), (D @ V.T, f.basis_grad_outputs(V, D))):
        if activation == "squared":
            close(have, 2 * (weights * P).T @ Z)
        else:
            close(have, (weights * P).T @ Z - (weights.T @ (Z * Z)) * H)


@each_storage
@each_activation
@pytest.mark.parametrize("augment", [False, True], ids=["plain", "augment"])
def test_brute_force(storage, activation, augment):
    X, Z, H, V, D, M = problem(storage, augment, 3, 2, n=12, d=5)
    f = make_features(X, H, activation)
    close(f.activations(), reference.activations(Z, H, activation))
    assert_verbs(f, Z, H, V, D, M, activation)


@each_storage
@each_activation
@pytest.mark.parametrize("augment", [False, True], ids=["plain", "augment"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_widths(storage, activation, augment, dtype):
    for k in WIDTHS:
        for m in (1, 5, 70):
            X, *rest = problem(storage, augment, k, m, dtype=dtype)
            assert_verbs(make_features(X, rest[1], activation), *rest, activation)


@each_storage
@each_activation
@pytest.mark.parametrize("augment", [False, True], ids=["plain", "augment"])
def test_gradient_is_that_of_finite_differences(storage, activation, augment):
    X, _, H, V, D, M = problem(storage, augment, 3, 2, n=15, d=4)
    f = make_features(X, H, activation)

    def value(H):
        return (make_features(X, H, activation).activations() * M).sum()

    def loss(H):
        return (make_features(X, H, activation).outputs(V) * D).sum()

    close(f.basis_grad(M), reference.numerical_gradient(value, H), 1e-9)
    close(f.basis_grad_outputs(V, D), reference.numerical_gradient(loss, H), 1e-9)


@each_storage
@each_activation
def test_threads(storage, activation):
    """More rows than a block; two threads agree to rounding, and with themselves to the bit."""
    for k, n in ((3, 8001), (7, 4001), (70, 1001)):
        X, *rest = problem(storage, True, k, 5, n=n, d=20)
        _, H, V, D, M = rest
        one, two = (make_features(X, H, activation, t) for t in (1, 2))
        assert (one.n_threads, two.n_threads) == (1, 2)
        for f in (one, two):
            S = reference.fast_activations(rest[0], H, activation)
            close(f.activations(), S, 1e-11)
        for call in (
            lambda f: f.activations(),
            lambda f, V=V: f.outputs(V),
            lambda f, D=D: f.pullback(D),
            lambda f, M=M: f.basis_grad(M),
            lambda f, V=V, D=D: f.basis_grad_outputs(V, D),
        ):
            first = call(two)
            close(first, call(one))
            assert_array_equal(call(two), first)
            assert_array_equal(call(one), call(one))


@st.composite
def small_problems(draw):
    n, d = draw(st.integers(0, 6)), draw(st.integers(1, 5))
    entries = st.sampled_from([0.0, 0.0, 0.0, 1.0, -2.0, 0.5])
    X = np.array(draw(st.lists(entries, min_size=n * d, max_size=n * d))).reshape(n, d)
    k, m = draw(st.integers(0, 6)), draw(st.integers(0, 6))
    return X, k, m, draw(st.booleans()), draw(st.sampled_from(ACTIVATIONS))


@check
@given(small_problems())
def test_any_shape_and_sparsity(problem):
    """n = 0, k = 0, m = 0, d = 1, empty rows and columns included."""
    X, k, m, augment, activation = problem
    n, d = X.shape
    rng = np.random.default_rng(k)
    H = rng.standard_normal((k, d + augment))
    rest = [rng.standard_normal(shape) for shape in ((k, m), (n, m), (n, k))]
    Z = reference.dense_of(X, augment)
    for storage in STORAGE.values():
        f = make_features(as_matrix(storage(X), augment), H, activation, 2)
        assert (f.n, f.k) == (n, k)
        assert_verbs(f, Z, H, *rest, activation)
        close(f.activations(), reference.activations(Z, H, activation))


@each_storage
def test_linear_terms(storage):
    for augment in (False, True):
        for m in (*WIDTHS, 0):
            for n in (0, 1, 700):
                for dtype in (np.float32, np.float64):
                    rng = np.random.default_rng(m)
                    X = data(n, 6, rng, dtype) if n else np.empty((0, 6))
                    Z = reference.dense_of(X, augment)
                    W, D = rng.standard_normal((6 + augment, m)), rng.standard_normal((n, m))
                    linear = LinearTerms(as_matrix(STORAGE[storage](X), augment))
                    close(linear.outputs(W), Z @ W)
                    close(linear.grad(D), Z.T @ D)


def test_rows_of_one_entry_have_no_interactions():
    """Exactly zero, where a difference of squares would leave rounding."""
    rng = np.random.default_rng(0)
    X = sp.csr_array((rng.random(50), rng.integers(0, 9, 50), np.arange(51)), shape=(50, 9))
    f = make_features(as_matrix(X), rng.random((7, 9)), "anova")
    assert_array_equal(f.activations(), 0)
    assert_array_equal(f.outputs(rng.random((7, 3))), 0)
    assert_array_equal(f.pullback(rng.random((50, 3))), 0)


@each_activation
def test_pullback_is_the_quadratic_form(activation):
    X, Z, H, _, D, _ = problem("csr", True, 4, 5)
    G = reference.gamma(Z, D, activation)
    want = np.array([reference.forms(G, h) for h in H])
    close(make_features(X, H, activation).pullback(D), want)


@each_storage
@each_activation
def test_memory_does_not_grow_with_k(storage, activation):
    """No n x k matrix: 256 basis vectors cost a few blocks more than 4 do."""
    n, m = 40_000, 3

    def peak(k):
        X, _, H, V, D, _ = problem(storage, False, k, m, n=50, d=5)
        X = as_matrix(STORAGE[storage](np.tile(reference.dense_of(np.eye(5)), (n // 5, 1))))
        D = np.ones((n, m))
        f = make_features(X, H, activation, 1)
        tracemalloc.start()
        f.outputs(V)
        f.pullback(D)
        f.basis_grad_outputs(V, D)
        result = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return result

    few, many = peak(4), peak(256)
    assert few >= 8 * n * m  # the result itself: allocations are seen
    assert many - few < 0.05 * 8 * n * 256


def test_given_output_memory():
    X, Z, H, *_ = problem("csr", False, 5, 1)
    f = make_features(X, H)
    out = np.full((60, 5), np.nan)
    assert f.activations(out) is out
    close(out, (Z @ H.T) ** 2)
    frozen = np.empty((60, 5))
    frozen.flags.writeable = False
    unaligned = np.empty(60 * 5 * 8 + 1, np.uint8)[1:].view(np.float64).reshape(60, 5)
    for bad in (np.empty((60, 4)), np.empty((60, 5), np.float32), frozen, unaligned,
                np.empty((5, 60)).T, [[0.0] * 5] * 60):  # fmt: skip
        with pytest.raises(ValueError, match="out must be"):
            f.activations(bad)


@each_storage
def test_h_is_copied(storage):
    X, _, H, V, D, _ = problem(storage, False, 3, 2)
    f = make_features(X, H, "anova")
    before = f.outputs(V), f.basis_grad_outputs(V, D)
    H[:] = 7
    for a, b in zip(before, (f.outputs(V), f.basis_grad_outputs(V, D)), strict=True):
        assert_array_equal(a, b)


def test_arguments_in_any_layout():
    X, Z, H, V, D, M = problem("dense", False, 3, 2)
    for f in (
        lambda a: np.asfortranarray(a),
        lambda a: a.tolist(),
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: np.frombuffer(a.tobytes()).reshape(a.shape),
        lambda a: np.frombuffer(b"x" + a.tobytes(), offset=1).reshape(a.shape),
    ):
        got = make_features(X, f(H), "anova")
        close(got.activations(), reference.activations(Z, H, "anova"))
        close(got.outputs(f(V)), reference.activations(Z, H, "anova") @ V)
        close(got.pullback(f(D)), reference.activations(Z, H, "anova").T @ D)
        close(got.basis_grad(f(M)), make_features(X, H, "anova").basis_grad(M))


@each_storage
def test_bad_arguments(storage):
    X = as_matrix(STORAGE[storage](np.eye(4, 3)))
    f, linear = make_features(X, np.ones((2, 3))), LinearTerms(X)
    V, D = np.ones((2, 5)), np.ones((4, 5))
    calls = {
        "H": ((2, 3), lambda a: make_features(X, a)),
        "V": ((2, 5), lambda a: f.basis_grad_outputs(a, D)),
        "D": ((4, 5), lambda a: f.basis_grad_outputs(V, a)),
        "M": ((4, 2), f.basis_grad),
    }
    loose = {
        "V": ((2, None), f.outputs),
        "D": ((4, None), f.pullback),
        "W": ((3, None), linear.outputs),
    }
    for name, (shape, call) in [*calls.items(), *loose.items(), ("D", ((4, None), linear.grad))]:
        good = np.ones([5 if size is None else size for size in shape])
        call(good)
        for bad, error in (
            (good * np.nan, ValueError),
            (good * np.inf, ValueError),
            (good[0], ValueError),
            (good[None], ValueError),
            ([[1.0], [1.0, 2.0]], ValueError),
            (good * 1j, TypeError),
            (good.astype(str), TypeError),
            (good.astype(object), TypeError),
            (None, TypeError),
            (sp.csr_array(good), TypeError),
        ):
            with pytest.raises(error, match=rf"^{name} "):
                call(bad)
        if shape[0] is not None:
            for rows in (1, -1):
                with pytest.raises(ValueError, match=rf"^[{name}D] must have shape"):
                    call(np.ones((len(good) + rows, good.shape[1])) if name != "H" else
                         np.ones((2, 3 + rows)))  # fmt: skip
    with pytest.raises(ValueError, match="activation must be one of"):
        make_features(X, np.ones((2, 3)), "cubic")
    for n_threads in (0, 2.0, "1"):
        with pytest.raises((TypeError, ValueError), match="n_threads"):
            make_features(X, np.ones((2, 3)), n_threads=n_threads)


def test_no_memory_is_read_that_was_not_set_up():
    dense = as_matrix(np.eye(3))
    with pytest.raises(TypeError, match="CsrMatrix"):
        CsrFeatures(dense, np.eye(3))
    for make in (CsrFeatures, DenseFeatures, make_features):
        for X in (None, np.eye(3)):
            with pytest.raises(TypeError, match="X"):
                make(X, np.eye(3))
    for X in (None, np.eye(3)):
        with pytest.raises(TypeError, match="X"):
            LinearTerms(X)
    with pytest.raises(TypeError):
        LinearTerms.__new__(LinearTerms)
    for kind in (Features, CsrFeatures, DenseFeatures):
        raw = kind.__new__(kind)
        assert raw.activations().shape == (0, 0)
        assert raw.outputs(np.empty((0, 2))).shape == (0, 2)
        assert raw.pullback(np.empty((0, 2))).shape == (0, 2)
        with pytest.raises(ValueError, match="never initialized"):
            raw.basis_grad(np.empty((0, 0)))
    f = make_features(dense, np.eye(3))
    assert not hasattr(f, "_outputs")
    assert not hasattr(f, "_basis_grad")


def test_doctests():
    assert doctest.testmod(features).failed == 0
