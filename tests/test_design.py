"""The methods of a Design against the kernels, for all kinds of X and lower-order terms."""

import doctest

import numpy as np
import pandas as pd
import pytest
import reference
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import fastpoly
from fastpoly import Design
from fastpoly.kernels.features import ACTIVATIONS
from fastpoly.kernels.linear import LinearTerms
from fastpoly.rows import design

FORMS = {
    "dense": np.asarray,
    "csr": sp.csr_array,
    "csc": sp.csc_matrix,
    "coo": sp.coo_array,
    "frame": pd.DataFrame,
    "list": lambda X: X.tolist(),
}


def example(n=30, d=6, k=4, m=3, extra=0, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)
    return X, *(rng.standard_normal(s) for s in ((k, d + extra), (k, m), (n, m), (n, k)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("fit_lower", design.FIT_LOWER)
def test_verbs(form, activation, fit_lower):
    augment = fit_lower == "augment"
    X, H, V, D, M = example(extra=augment)
    Z = reference.dense_of(X, augment)
    made = Design(FORMS[form](X), activation, fit_lower=fit_lower, n_threads=2)
    assert (made.n_samples, made.n_features) == Z.shape
    S = reference.activations(Z, H, activation)
    G = reference.gamma(Z, D, activation)
    assert_allclose(made.activations(H), S, atol=1e-12)
    assert_allclose(made.outputs(H, V), S @ V, atol=1e-11)
    assert_allclose(made.features(H).pullback(D), S.T @ D, atol=1e-11)
    assert_allclose(made.gamma(D).dense(), G, atol=1e-12)
    numerical = reference.numerical_gradient(lambda H: (made.activations(H) * M).sum(), H)
    assert_allclose(made.features(H).basis_grad(M), numerical, atol=1e-8)
    numerical = reference.numerical_gradient(lambda H: (made.outputs(H, V) * D).sum(), H)
    assert_allclose(made.features(H).basis_grad_outputs(V, D), numerical, atol=1e-7)
    if fit_lower == "explicit":
        assert isinstance(made.linear, LinearTerms)
        assert_allclose(made.linear.outputs(H.T), X @ H.T, atol=1e-12)
        assert_allclose(made.linear.grad(D), X.T @ D, atol=1e-12)
    else:
        assert made.linear is None


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("form", ["dense", "csr"])
def test_augment_is_a_column_of_ones(form, activation):
    X, H, V, D, M = example(extra=1)
    short = Design(FORMS[form](X), activation, fit_lower="augment")
    long = Design(FORMS[form](reference.dense_of(X, True)), activation)
    assert short.n_features == long.n_features
    for verb in (
        lambda a: a.activations(H),
        lambda a: a.outputs(H, V),
        lambda a: a.features(H).pullback(D),
        lambda a: a.features(H).basis_grad(M),
        lambda a: a.features(H).basis_grad_outputs(V, D),
        lambda a: a.gamma(D).dense(),
    ):
        assert_allclose(verb(short), verb(long), rtol=1e-12, atol=1e-12)


def test_augment_does_not_copy():
    X = example()[0]
    assert np.shares_memory(Design(X, fit_lower="augment").matrix.array, X)
    S = sp.csr_array(X)
    assert np.shares_memory(Design(S, fit_lower="augment").matrix.arrays[0], S.data)


def test_a_term_of_degree_two_and_its_lower_orders():
    """(1 + 2 x)^2 of the constant and one feature, and their product for anova."""
    x = np.array([[0.0], [1.0], [3.0]])
    H = [[1.0, 2.0]]  # the constant comes first
    for X in (x, sp.csr_array(x)):
        assert_array_equal(
            Design(X, "squared", fit_lower="augment").activations(H)[:, 0], [1, 9, 49]
        )
        assert_array_equal(Design(X, "anova", fit_lower="augment").activations(H)[:, 0], [0, 2, 6])


def test_bad_arguments():
    X, H, V, D, M = example()
    for bad in ("cubic", None, 2, "Squared", b"anova"):
        with pytest.raises(ValueError, match="activation must be one of"):
            Design(X, bad)
    for bad in ("linear", True, 1, ""):
        with pytest.raises(ValueError, match="fit_lower must be one of"):
            Design(X, fit_lower=bad)
    for bad in (0, "2", 1.5):
        with pytest.raises((ValueError, TypeError), match="n_threads"):
            Design(X, n_threads=bad)
    with pytest.raises(ValueError, match="X contains NaN"):
        Design(np.full((2, 2), np.nan))
    with pytest.raises(TypeError, match="X must hold real"):
        Design([["a"]])
    made = Design(X)
    for name, call in {
        "H": lambda: made.activations(H[:, 1:]),
        "V": lambda: made.outputs(H, V[1:]),
        "D": lambda: made.features(H).pullback(D[1:]),
        "M": lambda: made.features(H).basis_grad(M[:, 1:]),
    }.items():
        with pytest.raises(ValueError, match=f"^{name} must have shape"):
            call()
    with pytest.raises(ValueError, match=r"^D must have shape"):
        made.gamma(D[:-1])
    with pytest.raises(ValueError, match=r"^D must have shape"):
        made.features(H).basis_grad_outputs(V, D[:, 1:])
    with pytest.raises(ValueError, match=r"^D contains NaN"):
        made.gamma(D * np.nan)


def test_design_is_public():
    assert fastpoly.Design is Design
    assert dir(fastpoly) == sorted(fastpoly.__all__)


def test_doctests():
    assert doctest.testmod(design).failed == 0
