"""Dominant eigenvectors against `eigh`, on the spectra that fool an iterative solver."""

import doctest

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from fastpoly.kernels import eigen
from fastpoly.kernels.eigen import EIGH_FEATURES, METHODS, dominant_eigenvectors, ritz_vectors
from fastpoly.kernels.explicit import ExplicitGamma, explicit_gamma
from fastpoly.kernels.gamma import CsrGamma, DenseGamma, Gamma
from fastpoly.kernels.matrix import as_matrix

TOL = 5e-3


def rotated(values, rng):
    """A symmetric matrix with these eigenvalues and random eigenvectors; and the eigenvectors."""
    Q = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    G = (Q * values) @ Q.T
    return (G + G.T) / 2, Q


def spectrum(make):
    return lambda rng: rotated(make(rng), rng)[0]


def bipartite(rng, users=12, items=28):
    A = rng.standard_normal((users, items)) * (rng.random((users, items)) < 0.3)
    return np.block([[np.zeros((users, users)), A], [A.T, np.zeros((items, items))]])


def wigner(rng):
    A = rng.standard_normal((40, 40))
    return A + A.T


SPECTRA = {
    "normal": spectrum(lambda rng: rng.standard_normal(40)),
    "uniform": spectrum(lambda rng: rng.uniform(-1, 1, 40)),
    "wigner": wigner,
    "bipartite": bipartite,
    "tied": spectrum(lambda rng: np.r_[1, 1 - 1e-12, -1 + 1e-12, rng.uniform(-0.9, 0.9, 37)]),
    "rank one": spectrum(lambda rng: np.r_[-3, np.zeros(39)]),
    "nearly rank one": spectrum(lambda rng: np.r_[-3, 1e-9 * rng.standard_normal(39)]),
    "cluster": spectrum(lambda rng: 1 + 1e-2 * rng.random(40)),
    "cluster above a bulk": spectrum(
        lambda rng: np.r_[1 + 0.05 * rng.random(5), rng.uniform(-1, 1, 35)]
    ),
    "one above a bulk": spectrum(lambda rng: np.r_[-1.05, rng.uniform(-1, 1, 39)]),
    "one above a cluster": spectrum(lambda rng: np.r_[1.02, 1 + 1e-3 * rng.random(39)]),
    "geometric": spectrum(lambda rng: np.logspace(0, -8, 40)),
    "diagonal": lambda rng: np.diag(rng.uniform(-1, 1, 40)),
    "zero": lambda rng: np.zeros((7, 7)),
    "identity": lambda rng: np.eye(7),
    "diag(1, -1)": lambda rng: np.diag([1.0, -1.0]),
    "one feature": lambda rng: rng.standard_normal((1, 1)),
}


def assert_consistent(result, G):
    """Unit vectors, and values and residuals that belong to them."""
    H, scale = result.vectors, max(1e-300, np.abs(G).max() * G.shape[1])
    assert H.shape == G.shape[:2]
    assert_allclose(np.linalg.norm(H, axis=1), 1, rtol=1e-13)
    image = np.einsum("cij,cj->ci", G, H)
    assert_allclose(result.values, (H * image).sum(axis=1), atol=1e-12 * scale)
    residuals = np.linalg.norm(image - result.values[:, None] * H, axis=1)
    assert_allclose(result.residuals, residuals, atol=1e-11 * scale)


def matrices(name, m, seed):
    rng = np.random.default_rng([seed, m])
    return np.stack([SPECTRA[name](rng) for _ in range(m)])


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("m", [1, 3, 26])
def test_lanczos_finds_the_largest(name, m):
    for seed in range(5 if m < 26 else 1):
        G = matrices(name, m, seed)
        gamma, largest = ExplicitGamma(G), reference.largest(G)
        every = dominant_eigenvectors(gamma, "lanczos", each=True, random_state=seed)
        best = dominant_eigenvectors(gamma, "lanczos", random_state=seed)
        assert (np.abs(every.values) >= (1 - TOL) * largest).all()
        assert np.abs(best.values).max() >= (1 - TOL) * largest.max()
        for result in (every, best):
            assert_consistent(result, G)
            assert (result.bounds >= largest * (1 - 1e-12)).all()
        # What is asked of each output costs at least what is asked of the largest.
        assert best.n_matvecs <= every.n_matvecs <= G.shape[1]
        assert (every.bounds <= (1 + TOL) * np.abs(every.values) * (1 + 1e-12)).all()
        assert best.bounds.max() <= (1 + TOL) * np.abs(best.values).max() * (1 + 1e-12)


@pytest.mark.parametrize("name", SPECTRA)
def test_eigh_is_exact(name):
    G = matrices(name, 3, 0)
    result = dominant_eigenvectors(ExplicitGamma(G), "eigh")
    assert_allclose(np.abs(result.values), reference.largest(G), rtol=1e-12)
    assert_allclose(result.bounds, reference.largest(G), rtol=1e-12)
    assert_consistent(result, G)


@pytest.mark.parametrize("name", SPECTRA)
def test_power_reports_what_it_reached(name):
    for seed in range(3):
        G = matrices(name, 3, seed)
        result = dominant_eigenvectors(ExplicitGamma(G), "power", each=True, random_state=seed)
        assert_consistent(result, G)
        assert_allclose(result.bounds, np.abs(result.values) + result.residuals)
        assert (result.n_matvecs == 300) or (
            result.residuals <= TOL * np.abs(result.values) * (1 + 1e-9)
        ).all()


def ratings(n=2000, users=25, items=40, m=4, seed=0):
    """One-hot users and items, and gradients of ordinal outputs."""
    rng = np.random.default_rng(seed)
    u, i = np.sort(rng.integers(0, users, n)), rng.integers(0, items, n)
    X = sp.csr_array(
        (np.ones(2 * n), np.column_stack([u, users + i]).ravel(), np.arange(0, 2 * n + 1, 2)),
        shape=(n, users + items),
    )
    score = rng.standard_normal(users)[u] * rng.standard_normal(items)[i] + rng.standard_normal(n)
    return X, 0.5 - (score[:, None] <= np.quantile(score, np.linspace(0.2, 0.8, m)))


@pytest.mark.parametrize("augment", [False, True], ids=["plain", "augment"])
def test_pairs_of_opposite_eigenvalues(augment):
    """Users x items: eigenvalues in pairs +-sigma, between which the plain power method swings."""
    X, D = ratings()
    G = reference.gamma(reference.dense_of(X, augment), D, "anova")
    largest = reference.largest(G)
    if not augment:
        spectrum = np.linalg.eigvalsh(G)
        assert_allclose(spectrum, -spectrum[:, ::-1], atol=1e-10)
        plain = np.array([abs(reference.power_method(one, 300)) for one in G])
        assert (plain < 0.98 * largest).all()
    gamma = CsrGamma(as_matrix(X, augment), D, True)
    for method in ("lanczos", "power"):
        result = dominant_eigenvectors(gamma, method, each=True, random_state=0)
        assert_consistent(result, G)
        assert result.n_matvecs < 60
        if method == "lanczos" or not augment:
            assert (np.abs(result.values) >= (1 - TOL) * largest).all()


def test_the_plain_power_method_fails_on_opposite_signs():
    for sign in (1, -1):
        G = sign * np.diag([1.0, -1.0])
        assert abs(reference.power_method(G, 500)) < 0.99
        for method in METHODS:
            result = dominant_eigenvectors(ExplicitGamma(G[None]), method, random_state=0)
            assert_allclose(abs(result.values), 1, rtol=1e-10)


def test_a_small_residual_is_not_enough():
    """From a start with little of the dominant vector, the next one converges first."""
    residual_rule_fails = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        G, Q = rotated(np.r_[1.1, 1, rng.uniform(-0.5, 0.5, 78)], rng)
        gamma = ExplicitGamma(G[None])
        result = dominant_eigenvectors(gamma, "lanczos", start=Q[:, 1:2], random_state=seed)
        assert abs(result.values[0]) >= (1 - TOL) * 1.1
        assert result.bounds[0] >= 1.1 * (1 - 1e-12)
        early = dominant_eigenvectors(
            gamma, "lanczos", start=Q[:, 1:2], random_state=seed, max_matvecs=6
        )
        residual_rule_fails += early.values[0] < 1.05 and early.residuals[0] < TOL
    assert residual_rule_fails > 5


@pytest.mark.parametrize("top", [2, 1.1, 1.02])
@pytest.mark.parametrize("d", [2, 10, 100])
def test_start_from_an_eigenvector_that_is_not_dominant(top, d):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        G, Q = rotated(np.r_[-top, 1, rng.uniform(-0.5, 0.5, d - 2)], rng)
        gamma = ExplicitGamma(G[None])
        for start in (Q[:, 1:2], 1e-9 * Q[:, 1:2], np.zeros((d, 1)), Q[:, :1]):
            result = dominant_eigenvectors(gamma, "lanczos", start=start, random_state=seed)
            assert result.values[0] <= -(1 - TOL) * top


def test_a_good_start_helps():
    rng = np.random.default_rng(0)
    G, Q = rotated(np.r_[1.05, rng.uniform(-1, 1, 149)], rng)
    gamma = ExplicitGamma(G[None])
    cold = dominant_eigenvectors(gamma, "power", random_state=0)
    warm = dominant_eigenvectors(gamma, "power", random_state=0, start=Q[:, :1])
    assert warm.n_matvecs < cold.n_matvecs
    assert warm.values[0] >= (1 - TOL) * 1.05


@pytest.mark.parametrize("activation", ["squared", "anova"])
def test_every_gamma(activation):
    """The same answer from rows and from matrices."""
    rng = np.random.default_rng(0)
    X, D = rng.standard_normal((80, 30)), rng.standard_normal((80, 5))
    anova = activation == "anova"
    largest = reference.largest(reference.gamma(X, D, activation))
    sparse = as_matrix(sp.csr_array(X))
    for gamma in (
        CsrGamma(sparse, D, anova),
        DenseGamma(as_matrix(X), D, anova),
        explicit_gamma(sparse, D, anova),
    ):
        for method in ("lanczos", "auto", "eigh"):
            result = dominant_eigenvectors(gamma, method, each=True, random_state=0)
            assert (np.abs(result.values) >= (1 - TOL) * largest).all()


def test_auto_uses_eigh_for_few_features_only():
    few, many = (ExplicitGamma(np.eye(EIGH_FEATURES + more)[None]) for more in (0, 1))
    assert dominant_eigenvectors(few).n_matvecs == 0
    assert dominant_eigenvectors(many).n_matvecs > 0
    row = DenseGamma(as_matrix(np.eye(10)), np.ones((10, 1)))
    assert dominant_eigenvectors(row).n_matvecs > 0


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_bits(method):
    gamma = ExplicitGamma(matrices("wigner", 5, 0))
    start = np.ones((40, 5))
    for keywords in ({}, {"start": start}, {"each": True}):
        a, b = (dominant_eigenvectors(gamma, method, random_state=3, **keywords) for _ in range(2))
        for x, y in zip(a, b, strict=True):
            assert_array_equal(x, y)
    if method in ("lanczos", "power"):
        other = dominant_eigenvectors(gamma, method, random_state=4)
        assert (other.vectors != a.vectors).any()
    for random_state in (None, np.random.default_rng(0), np.random.RandomState(0), np.int64(3)):
        dominant_eigenvectors(gamma, method, random_state=random_state)


@pytest.mark.parametrize("method", ["lanczos", "power"])
def test_max_matvecs(method):
    G = matrices("uniform", 3, 0)
    for limit in (2, 3, 5, 20):
        result = dominant_eigenvectors(
            ExplicitGamma(G), method, tol=1e-9, max_matvecs=limit, random_state=0
        )
        assert result.n_matvecs == limit
        assert_consistent(result, G)
        if method == "lanczos":
            assert (result.bounds >= reference.largest(G)).all()


def test_tol():
    G = matrices("uniform", 3, 1)
    steps = []
    for tol in (1e-1, 1e-3, 1e-10):
        result = dominant_eigenvectors(
            ExplicitGamma(G), "lanczos", tol=tol, each=True, random_state=0
        )
        assert (np.abs(result.values) >= (1 - tol) * reference.largest(G) * (1 - 1e-13)).all()
        steps.append(result.n_matvecs)
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]


def test_scale_does_not_matter():
    G = matrices("wigner", 2, 0)
    plain = dominant_eigenvectors(ExplicitGamma(G), "lanczos", random_state=0)
    for scale in (2.0**-300, 2.0**300):
        scaled = dominant_eigenvectors(ExplicitGamma(scale * G), "lanczos", random_state=0)
        assert_array_equal(scaled.vectors, plain.vectors)
        assert_array_equal(scaled.values, scale * plain.values)
        assert_allclose(scaled.bounds, scale * plain.bounds, rtol=1e-9)


def test_no_rows():
    gamma = CsrGamma(as_matrix(sp.csr_array((0, 5))), np.empty((0, 3)))
    for method in METHODS:
        result = dominant_eigenvectors(gamma, method, random_state=0)
        assert_array_equal(result.values, 0)
        assert_array_equal(result.bounds, 0)
        assert_allclose(np.linalg.norm(result.vectors, axis=1), 1)


def test_bad_arguments():
    gamma = ExplicitGamma(np.eye(3)[None])
    for keywords, error in (
        ({"method": "qr"}, ValueError),
        ({"method": None}, ValueError),
        ({"tol": 0}, ValueError),
        ({"tol": -1.0}, ValueError),
        ({"tol": np.nan}, ValueError),
        ({"tol": "small"}, TypeError),
        ({"max_matvecs": 1}, ValueError),
        ({"max_matvecs": -3}, ValueError),
        ({"max_matvecs": 2.5}, TypeError),
        ({"max_matvecs": "many"}, TypeError),
        ({"max_matvecs": None}, TypeError),
        ({"start": np.ones((2, 1))}, ValueError),
        ({"start": np.ones((3, 2))}, ValueError),
        ({"start": np.ones(3)}, ValueError),
        ({"start": np.full((3, 1), np.nan)}, ValueError),
        ({"start": np.full((3, 1), "a")}, TypeError),
        ({"random_state": -1}, ValueError),
        ({"random_state": "seed"}, TypeError),
        ({"random_state": 1.5}, TypeError),
    ):
        (name,) = keywords
        with pytest.raises(error, match=f"^{name} "):
            dominant_eigenvectors(gamma, **{"method": "lanczos", **keywords})
    for bad in (None, np.eye(3), "gamma"):
        with pytest.raises(TypeError, match="gamma"):
            dominant_eigenvectors(bad)
    with pytest.raises(ValueError, match="never initialized"):
        dominant_eigenvectors(Gamma())


@pytest.mark.parametrize("method", METHODS)
def test_overflow(method):
    X = as_matrix(np.full((2, 3), 1e200))
    with pytest.raises(ValueError, match="Gamma overflows"):
        dominant_eigenvectors(DenseGamma(X, np.ones((2, 1))), method, random_state=0)


# ---- several Ritz vectors of one run ------------------------------------------------------------


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("m", [1, 3])
def test_all_ritz_vectors_are_the_spectrum(name, m):
    """After d steps the Krylov space is the whole space, also with restarts."""
    G = matrices(name, m, 0)
    d, scale = G.shape[1], np.abs(G).max() + 1e-300
    result = ritz_vectors(ExplicitGamma(G), m * d, d, random_state=0)
    truth = np.linalg.eigvalsh(G)
    assert (np.diff(np.abs(result.values)) <= 0).all()
    for c in range(m):
        own = result.outputs == c
        assert_allclose(np.sort(result.values[own]), truth[c], atol=1e-9 * scale * d)
        H = result.vectors[own]
        assert_allclose(H @ H.T, np.eye(d), atol=1e-8)
        assert_allclose(H @ G[c], result.values[own][:, None] * H, atol=1e-7 * scale * d)


@pytest.mark.parametrize("augment", [False, True], ids=["plain", "augment"])
def test_ritz_vectors_of_both_ends(augment):
    X, D = ratings(users=40, items=80)
    G = reference.gamma(reference.dense_of(X, augment), D, "anova")
    gamma = CsrGamma(as_matrix(X, augment), D, True)
    result = ritz_vectors(gamma, 6, 40, random_state=0)
    truth = np.sort(np.abs(np.linalg.eigvalsh(G)).ravel())[::-1][:6]
    assert_allclose(np.abs(result.values), truth, rtol=2e-2)
    assert (result.values > 0).any()
    assert (result.values < 0).any()
    H, c = result.vectors, result.outputs
    assert_allclose(np.einsum("ri,rij,rj->r", H, G[c], H), result.values, rtol=1e-9)
    assert_allclose(np.linalg.norm(H, axis=1), 1, rtol=1e-12)


def test_more_steps_leave_the_dominant_ones_as_good():
    """The same stop rule and bounds, after at least that many steps."""
    G = matrices("uniform", 3, 0)
    gamma, largest = ExplicitGamma(G), reference.largest(G)
    one = dominant_eigenvectors(gamma, "lanczos", random_state=0)
    same = ritz_vectors(gamma, 0, 1, random_state=0)
    assert same.vectors.shape == (0, 40)
    for x, y in zip(same.dominant, one, strict=True):
        assert_array_equal(x, y)
    more = ritz_vectors(gamma, 5, one.n_matvecs + 4, random_state=0).dominant
    assert more.n_matvecs == one.n_matvecs + 4
    assert_consistent(more, G)
    assert (more.bounds >= largest * (1 - 1e-12)).all()
    assert (more.bounds <= one.bounds * (1 + 1e-9)).all()
    start = one.vectors.T
    a, b = (ritz_vectors(gamma, 4, 9, start=start, random_state=1) for _ in range(2))
    for x, y in zip(a[:3], b[:3], strict=True):
        assert_array_equal(x, y)


def test_doctests():
    assert doctest.testmod(eigen).failed == 0


@pytest.mark.parametrize("method", ["lanczos", "power", "eigh"])
@pytest.mark.parametrize("scale", [2.0**-900, 2.0**-550, 1.0, 2.0**550, 2.0**900])
def test_squares_that_are_no_numbers(method, scale):
    """A power of two scales without rounding, although squares of Gamma overflow or vanish."""
    G = np.random.default_rng(3).standard_normal((2, 12, 12))
    G += G.transpose(0, 2, 1)
    result = dominant_eigenvectors(ExplicitGamma(G * scale), method, tol=1e-6, random_state=0)
    one = dominant_eigenvectors(ExplicitGamma(G), method, tol=1e-6, random_state=0)
    for have, want in zip(result[:4], one[:4], strict=True):
        unit = 1.0 if have.ndim == 2 else scale
        np.testing.assert_allclose(have / unit, want, rtol=1e-9, atol=1e-12)
