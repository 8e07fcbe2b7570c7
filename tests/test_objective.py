"""The smooth part of a refit against plain NumPy, for every loss and every form of the data."""

import doctest

import numpy as np
import pytest
import reference_refit as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array

from fastpoly.kernels import objective as module
from fastpoly.kernels.features import StoredFeatures, make_features
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.losses import LOSSES, get_loss
from fastpoly.kernels.matrix import as_matrix
from fastpoly.kernels.objective import Objective

pytestmark = pytest.mark.usefixtures("all_threads")

EVERY_LOSS = pytest.mark.parametrize("name", sorted(LOSSES))
KINDS = ("stored", "dense squared", "dense anova", "csr squared", "csr anova")


def sparse_rows(rng, n, d):
    return rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)


def activations(X, H, activation):
    """The formulas of the activations, (n, k)."""
    if activation == "squared":
        return (X @ H.T) ** 2
    return ((X @ H.T) ** 2 - (X * X) @ (H * H).T) / 2


def case(name, kind="stored", n=70, d=5, k=4, m=3, seed=0, n_threads=1, linear=None, weights=True):
    """An Objective, and the NumPy matrix A (n, n_rows) with O = A P, targets and weights."""
    rng = np.random.default_rng(seed)
    X, H = sparse_rows(rng, n, d), rng.normal(size=(k, d))
    if kind == "stored":
        S = rng.normal(size=(n, k))
        features = StoredFeatures(S, n_threads)
    else:
        storage, activation = kind.split()
        S = activations(X, H, activation)
        matrix = as_matrix(X if storage == "dense" else csr_array(X))
        features = make_features(matrix, H, activation, n_threads)
    Y = reference.targets(name, rng, rng.normal(size=(n, m)))
    w = rng.random(n) * (rng.random(n) < 0.8) if weights else None
    terms, A = None, S
    if linear is not None:
        Z = sparse_rows(rng, n, d + 2)
        terms = LinearTerms(as_matrix(Z if linear == "dense" else csr_array(Z)))
        A = np.hstack([S, np.ones((n, 1)), Z])
    P = rng.normal(size=(A.shape[1], m))
    return Objective(features, get_loss(name), Y, m, w, terms), A, Y, w, P


def assert_equals_numpy(objective, A, name, Y, w, P):
    value, G = reference.loss_grad(name, A, Y, P, w)
    D = np.full((objective.n, objective.m), np.nan)
    for got_value, got_G in (objective.value_grad(P), objective.value_grad(P, D)):
        assert_allclose(got_value, value, rtol=1e-11, atol=1e-13)
        assert_allclose(got_G, G, rtol=1e-10, atol=1e-11 * (1 + np.abs(G).max(initial=0)))
    rows = reference.ROWS[name](Y, A @ P)[1] * (1 if w is None else w[:, None])
    assert_allclose(D, rows, rtol=1e-10, atol=1e-12)
    assert_allclose(objective.outputs(P), A @ P, rtol=1e-11, atol=1e-12)
    assert_allclose(
        objective.gradient(D), G, rtol=1e-10, atol=1e-11 * (1 + np.abs(G).max(initial=0))
    )


@EVERY_LOSS
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("linear", [None, "dense", "csr"])
def test_value_and_gradient(name, kind, linear):
    for n_threads in (1, 2):
        for weights in (False, True):
            objective, A, Y, w, P = case(
                name, kind, linear=linear, n_threads=n_threads, weights=weights
            )
            assert objective.n_rows == len(P)
            assert_equals_numpy(objective, A, name, Y, w, P)


@EVERY_LOSS
@settings(max_examples=15, deadline=None)
@given(
    n=st.integers(1, 40),
    k=st.integers(0, 9),
    m=st.integers(1, 9),
    kind=st.sampled_from(KINDS),
    linear=st.sampled_from([None, "dense", "csr"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape(name, n, k, m, kind, linear, seed):
    objective, A, Y, w, P = case(name, kind, n, 3, k, m, seed, linear=linear)
    assert_equals_numpy(objective, A, name, Y, w, P)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1, 26])
def test_many_blocks_and_threads(kind, m):
    """Enough rows that every thread sees several blocks and a ragged end."""
    for n_threads in (1, 2):
        objective, A, Y, w, P = case(
            "binary_logistic", kind, 4001, 6, 11, m, linear="csr", n_threads=n_threads
        )
        assert_equals_numpy(objective, A, "binary_logistic", Y, w, P)


def test_threads_are_used_and_repeat_their_bits():
    objective, *_, P = case("squared", n=20_000, n_threads=2, linear="dense")
    assert objective.features.n_threads == 2
    value, G = objective.value_grad(P)
    again, G_again = objective.value_grad(P)
    assert value == again
    assert_array_equal(G, G_again)


@EVERY_LOSS
@pytest.mark.parametrize("linear", [None, "csr"])
def test_gradient_by_central_differences(name, linear):
    objective, *_, P = case(name, "csr anova", n=30, linear=linear)
    G, h = objective.value_grad(P)[1], 1e-5
    for i, c in np.ndindex(P.shape):
        step = np.zeros_like(P)
        step[i, c] = h
        slope = (objective.value_grad(P + step)[0] - objective.value_grad(P - step)[0]) / (2 * h)
        assert_allclose(G[i, c], slope, rtol=1e-5, atol=1e-5)


class PlainLoss:
    """A user's loss: plain Python with the whole-matrix verbs."""

    def __init__(self, name):
        self.name, self.target, self.smoothness = name, LOSSES[name].target, lambda m: 0.5

    def value(self, Y, O, w=None):
        return self.value_grad(Y, O, w)[0]

    def value_grad(self, Y, O, w=None):
        w = np.ones(len(O)) if w is None else w
        values, D = reference.ROWS[self.name](Y, O)
        return float(w @ values), w[:, None] * D


@EVERY_LOSS
@pytest.mark.parametrize("linear", [None, "dense"])
def test_a_python_loss_gives_the_same(name, linear):
    compiled, A, Y, w, P = case(name, "csr squared", linear=linear)
    plain = Objective(compiled.features, PlainLoss(name), Y, compiled.m, w, compiled.linear)
    assert_equals_numpy(plain, A, name, Y, w, P)
    assert_allclose(plain.value_grad(P)[1], compiled.value_grad(P)[1], rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("k", "m"), [(1, 1), (7, 3), (40, 2), (0, 2)])
def test_hessian_blocks(kind, k, m):
    for n_threads in (1, 2):
        objective, A, *_ = case("squared", kind, 3001, 6, k, m, n_threads=n_threads)
        C = np.random.default_rng(1).normal(size=(3001, m))
        want = np.einsum("ir,ic,is->crs", A, C, A)
        got = objective.hessian_blocks(C)
        assert_allclose(got, want, rtol=1e-9, atol=1e-10 * np.abs(want).max(initial=1))


@EVERY_LOSS
def test_hessian_blocks_are_second_derivatives(name):
    objective, _, Y, w, P = case(name, "dense anova", n=40)
    blocks = objective.hessian_blocks(objective.loss.curvature(Y, objective.outputs(P), w))
    h = 1e-6
    for r, c in np.ndindex(P.shape):
        step = np.zeros_like(P)
        step[r, c] = h
        slope = (objective.value_grad(P + step)[1] - objective.value_grad(P - step)[1]) / (2 * h)
        assert_allclose(blocks[c, r], slope[:, c], rtol=1e-4, atol=1e-5)


def test_read_only_and_odd_storage():
    S, Y, P = np.random.default_rng(0).normal(size=(3, 12, 2))
    P = P[:2]
    want = Objective(StoredFeatures(S), get_loss("squared"), Y, 2).value_grad(P)
    for a in (S, Y, P):
        a.flags.writeable = False
    for same in (S, np.asfortranarray(S), S.tolist()):
        got = Objective(StoredFeatures(same), get_loss("squared"), Y.tolist(), 2).value_grad(P)
        assert got[0] == want[0]
        assert_array_equal(got[1], want[1])


def test_bad_input():
    features, loss = StoredFeatures(np.ones((4, 2))), get_loss("squared")
    Y, P = np.ones((4, 3)), np.ones((2, 3))
    objective = Objective(features, loss, Y, 3)
    linear, own = LinearTerms(as_matrix(np.ones((5, 1)))), PlainLoss("squared")
    for error, says, call in [
        (ValueError, "n_outputs must be at least 1", lambda: Objective(features, loss, Y, 0)),
        (ValueError, "linear has 5 rows.*4", lambda: Objective(features, loss, Y, 3, None, linear)),
        (ValueError, "Y must have shape", lambda: Objective(features, loss, Y[:3], 3)),
        (ValueError, "Y must have shape", lambda: Objective(features, loss, Y[:, :2], 3)),
        (ValueError, "Y must have shape", lambda: Objective(features, own, Y[1:], 3)),
        (ValueError, "w must have shape", lambda: Objective(features, loss, Y, 3, np.ones(3))),
        (ValueError, "w must be non-neg", lambda: Objective(features, loss, Y, 3, -np.ones(4))),
        (ValueError, "which is not a class code", lambda: Objective(
            features, get_loss("multiclass_logistic"), np.full((4, 1), 3.0), 3)),
        (ValueError, "P must have shape", lambda: objective.value_grad(P[:1])),
        (ValueError, "P must have shape", lambda: objective.value_grad(P[:, :2])),
        (ValueError, "P must have shape", lambda: objective.outputs(P.T)),
        (TypeError, "P must hold real", lambda: objective.value_grad(P.astype(complex))),
        (ValueError, "D must be a float64", lambda: objective.value_grad(P, np.ones((3, 3)))),
        (ValueError, "D must be a float64", lambda: objective.value_grad(P, np.ones((4, 3), "f4"))),
        (ValueError, "D must be C-cont", lambda: objective.value_grad(P, np.ones((3, 4)).T)),
        (ValueError, "D must have", lambda: objective.gradient(np.ones((3, 3)))),
        (ValueError, "C must have shape", lambda: objective.hessian_blocks(np.ones((4, 2)))),
        (TypeError, "features", lambda: Objective(np.ones((4, 2)), loss, Y, 3)),
    ]:  # fmt: skip
        with pytest.raises(error, match=says):
            call()


def test_examples_in_docstrings():
    assert doctest.testmod(module).failed == 0
