"""Every form of Gamma against explicit matrices made from the formulas."""

import doctest
import functools

import numpy as np
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from subprocesses import run_python

from fastpoly.kernels import explicit, gamma
from fastpoly.kernels.explicit import ExplicitGamma, explicit_gamma, make_gamma
from fastpoly.kernels.features import ACTIVATIONS
from fastpoly.kernels.gamma import CsrGamma, DenseGamma, Gamma
from fastpoly.kernels.matrix import as_matrix

pytestmark = pytest.mark.usefixtures("all_threads")

WIDTHS = (1, 2, 5, 7, 64, 70)
check = settings(max_examples=40, deadline=None, derandomize=True)


def sparse_rows(n, d, rng, dtype):
    """Rows of uneven length, some empty, the last columns never used."""
    X = sp.random_array((n, d), density=0.3, rng=rng, dtype=np.float64, format="csr")
    X.data = rng.standard_normal(X.nnz)
    keep = np.ones(n)
    keep[[0, n // 2, n - 1]] = 0
    X = sp.csr_array(X * keep[:, None])
    X.eliminate_zeros()
    return sp.csr_array(X * (np.arange(d) < d - 2)).astype(dtype)


def pair_rows(n, d, rng, dtype, ones=True):
    """Two entries per row, sorted by the first, as ratings of users x items are."""
    users, items = np.sort(rng.integers(0, d // 2, n)), rng.integers(d // 2, d, n)
    data = np.ones(2 * n) if ones else rng.standard_normal(2 * n)
    return sp.csr_array(
        (data.astype(dtype), np.column_stack([users, items]).ravel(), np.arange(0, 2 * n + 1, 2)),
        shape=(n, d),
    )


def dense_rows(n, d, rng, dtype):
    return rng.standard_normal((n, d)).astype(dtype)


# name: (data, class or function that makes a Gamma of a Matrix)
KINDS = {
    "csr": (sparse_rows, CsrGamma),
    "pairs of ones": (pair_rows, CsrGamma),
    "pairs": (functools.partial(pair_rows, ones=False), CsrGamma),
    "dense": (dense_rows, DenseGamma),
    "dense, of csr": (sparse_rows, DenseGamma),
    "explicit": (dense_rows, explicit_gamma),
    "explicit, of csr": (sparse_rows, explicit_gamma),
    "chosen": (dense_rows, lambda X, D, anova, t: make_gamma(X, D, ACTIVATIONS[anova], t)),
    "chosen, of csr": (sparse_rows, lambda X, D, anova, t: make_gamma(X, D, ACTIVATIONS[anova], t)),
}


def assert_verbs(g, G, rng, rtol=1e-12):
    """The verbs of g are those of the matrices G (m, d, d)."""
    m, d, _ = G.shape
    B, h, w = rng.standard_normal((d, m)), rng.standard_normal(d), rng.standard_normal(m)
    scale = max(1, np.abs(G).max() * d)  # 1: what anova may have subtracted again
    for have, want in (
        (g.matvecs(B), reference.matvecs(G, B)),
        (g.forms(h), reference.forms(G, h)),
        (g.combine(w, h), reference.combine(G, w, h)),
        (g.dense(), G),
    ):
        assert have.shape == want.shape
        assert have.dtype == np.float64
        assert_allclose(have, want, rtol=rtol, atol=rtol * max(scale, np.abs(want).max()))


def problem(kind, activation, augment, dtype, m, n=60, d=9, seed=0, n_threads=1):
    data, make = KINDS[kind]
    rng = np.random.default_rng([seed, m])
    X, D = data(n, d, rng, dtype), rng.standard_normal((n, m))
    g = make(as_matrix(X, augment), D, activation == "anova", n_threads)
    return g, reference.gamma(reference.dense_of(X, augment), D, activation), rng


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("augment", [False, True], ids=["plain", "augment"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])
def test_verbs(kind, activation, augment, dtype):
    # float32 is only how X is stored: the arithmetic is that of float64.
    for m in WIDTHS:
        g, G, rng = problem(kind, activation, augment, dtype, m)
        assert (g.d, g.m) == G.shape[1:][::-1][:1] + G.shape[:1]
        assert_verbs(g, G, rng)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "chosen" not in kind])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_threads(kind, activation):
    """Two threads agree with one to rounding, and with themselves to the last bit."""
    for m, augment in ((5, True), (70, False)):
        size = {"n": 21_000 // m + 301, "d": 30, "augment": augment, "dtype": np.float64, "m": m}
        one, G, rng = problem(kind, activation, **size)
        two = problem(kind, activation, **size, n_threads=2)[0]
        if hasattr(two, "n_threads"):
            assert (one.n_threads, two.n_threads) == (1, 2)
        B, h, w = rng.standard_normal((one.d, m)), rng.standard_normal(one.d), rng.random(m)
        for call, want in (
            (lambda g, B=B: g.matvecs(B), reference.matvecs(G, B)),
            (lambda g, h=h: g.forms(h), reference.forms(G, h)),
            (lambda g, w=w, h=h: g.combine(w, h), reference.combine(G, w, h)),
        ):
            first, alone = call(two), call(one)
            assert_allclose(first, alone, rtol=1e-12, atol=1e-12 * np.abs(first).max())
            assert_allclose(first, want, rtol=1e-12, atol=1e-11 * np.abs(first).max())
            assert_array_equal(call(two), first)
            assert_array_equal(call(one), alone)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "chosen" not in kind])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_combined_operators(kind, activation):
    g, G, rng = problem(kind, activation, True, np.float64, 3)
    S = rng.standard_normal((3, 5))
    assert_verbs(g.combined(S), np.einsum("ce,cij->eij", S, G), rng)
    with pytest.raises(ValueError, match="S must have shape"):
        g.combined(S.T)


def test_rows_beyond_one_block():
    """More rows than any block, and a number of them that no block divides."""
    for kind in KINDS:
        for activation in ACTIVATIONS:
            g, G, rng = problem(kind, activation, True, np.float64, 5, n=1031, d=21)
            assert_verbs(g, G, rng, rtol=1e-11)


def test_many_features_beyond_one_block_of_products():
    for kind in ("explicit", "dense", "csr"):
        g, G, rng = problem(kind, "anova", False, np.float32, 3, n=150, d=70)
        assert_verbs(g, G, rng)


@st.composite
def small_problems(draw):
    n, d, m = draw(st.integers(0, 7)), draw(st.integers(1, 6)), draw(st.integers(1, 9))
    entries = st.sampled_from([0.0, 0.0, 0.0, 1.0, -2.0, 0.5])
    X = np.array(draw(st.lists(entries, min_size=n * d, max_size=n * d))).reshape(n, d)
    return X, m, draw(st.booleans()), draw(st.sampled_from(ACTIVATIONS))


@check
@given(small_problems())
def test_any_shape_and_sparsity(problem):
    X, m, augment, activation = problem
    rng = np.random.default_rng(m)
    D = rng.standard_normal((len(X), m))
    G = reference.gamma(reference.dense_of(X, augment), D, activation)
    dense, sparse = as_matrix(X, augment), as_matrix(sp.csr_array(X), augment)
    anova = activation == "anova"
    for g in (
        CsrGamma(sparse, D, anova),
        DenseGamma(dense, D, anova),
        DenseGamma(sparse, D, anova),
        explicit_gamma(dense, D, anova),
        explicit_gamma(sparse, D, anova),
        make_gamma(dense, D, activation),
        make_gamma(sparse, D, activation),
    ):
        assert_verbs(g, G, rng)


def test_pairs_in_any_order():
    """The loop for two entries per row keeps the first one in registers while it stays the same."""
    rng = np.random.default_rng(3)
    for n in (1, 2, 50):
        rows = np.sort([rng.choice(6, 2, replace=False) for _ in range(n)], axis=1)
        X = sp.csr_array((rng.random(2 * n), rows.ravel(), np.arange(0, 2 * n + 1, 2)), (n, 6))
        assert as_matrix(X).pairs
        D = rng.standard_normal((n, 5))
        for activation in ACTIVATIONS:
            g = CsrGamma(as_matrix(X), D, activation == "anova")
            assert_verbs(g, reference.gamma(X.toarray(), D, activation), rng)


def test_anova_forms_by_brute_force():
    rng = np.random.default_rng(0)
    X, D, h = rng.standard_normal((6, 5)), rng.standard_normal((6, 2)), rng.standard_normal(5)
    want = reference.activations(X, h[None], "anova")[:, 0] @ D
    for g in (CsrGamma(as_matrix(sp.csr_array(X)), D, True), DenseGamma(as_matrix(X), D, True)):
        assert_allclose(g.forms(h), want, rtol=1e-12)


def test_augment_is_a_column_of_ones():
    rng = np.random.default_rng(1)
    D = rng.standard_normal((40, 7))
    for make in (lambda X: X, sp.csr_array):
        X = make(sparse_rows(40, 8, rng, np.float64).toarray())
        with_ones = make(reference.dense_of(X, True))
        for activation in ACTIVATIONS:
            a = make_gamma(as_matrix(X, True), D, activation)
            b = make_gamma(as_matrix(with_ones), D, activation)
            assert_allclose(a.dense(), b.dense(), rtol=1e-12, atol=1e-13)


def test_integer_weights_are_repeated_rows():
    rng = np.random.default_rng(2)
    X, D, times = rng.random((30, 6)), rng.standard_normal((30, 5)), rng.integers(0, 4, 30)
    for make in (lambda X: X, sp.csr_array):
        for activation in ACTIVATIONS:
            weighted = make_gamma(as_matrix(make(X)), times[:, None] * D, activation)
            repeated = make_gamma(
                as_matrix(make(np.repeat(X, times, axis=0))),
                np.repeat(D, times, axis=0), activation,
            )  # fmt: skip
            assert_allclose(weighted.dense(), repeated.dense(), rtol=1e-12, atol=1e-13)


def test_rows_of_one_entry_have_no_interactions():
    """Nothing to multiply: exactly zero, where a difference of squares leaves rounding."""
    rng = np.random.default_rng(0)
    X = sp.csr_array((rng.random(50), rng.integers(0, 9, 50), np.arange(51)), shape=(50, 9))
    g = CsrGamma(as_matrix(X), rng.standard_normal((50, 3)), True)
    assert_array_equal(g.forms(rng.random(9)), 0)
    assert_allclose(g.matvecs(rng.random((9, 3))), 0, atol=1e-14)


def test_make_gamma_chooses_by_cost():
    rng = np.random.default_rng(0)
    few, many = rng.random((20, 17)), rng.random((20, 300))
    D = rng.random((20, 2))
    assert isinstance(make_gamma(as_matrix(few), D), ExplicitGamma)
    assert isinstance(make_gamma(as_matrix(many), D), DenseGamma)
    assert isinstance(make_gamma(as_matrix(sp.csr_array(few)), D), ExplicitGamma)
    assert isinstance(make_gamma(as_matrix(sp.csr_array(many)), D), CsrGamma)
    assert isinstance(make_gamma(as_matrix(pair_rows(20, 30, rng, float)), D), CsrGamma)


def test_no_rows():
    for X in (np.empty((0, 3)), sp.csr_array((0, 3))):
        for augment in (False, True):
            for activation in ACTIVATIONS:
                g = make_gamma(as_matrix(X, augment), np.empty((0, 2)), activation, 2)
                assert_array_equal(g.dense(), 0)
                assert_array_equal(g.combine([1, 2], np.ones(3 + augment)), 0)


def test_arguments_in_any_layout():
    """Integers, Fortran order, lists and read-only memory are converted or read in place."""
    rng = np.random.default_rng(0)
    X, D = rng.random((10, 4)), rng.integers(-3, 4, (10, 3))
    X.flags.writeable = False
    frozen = D.astype(float)
    frozen.flags.writeable = False
    G = reference.gamma(X, D, "anova")
    for gradients in (D, D.tolist(), np.asfortranarray(D), frozen, D.astype(np.float32), D > 9):
        for make in (CsrGamma, DenseGamma):
            Z = as_matrix(sp.csr_array(X) if make is CsrGamma else X)
            want = 0 * G if gradients is not D and np.asarray(gradients).dtype == bool else G
            g = make(Z, gradients, True)
            assert_allclose(g.dense(), want, atol=1e-13)
            B = np.asfortranarray(rng.random((4, 3)))
            B.flags.writeable = False
            assert_allclose(g.matvecs(B), reference.matvecs(want, B), atol=1e-13)
    assert_allclose(ExplicitGamma(np.asfortranarray(G)).dense(), G)


def test_explicit_gamma_of_given_matrices():
    rng = np.random.default_rng(0)
    G = rng.standard_normal((5, 4, 4))
    G = G + G.transpose(0, 2, 1)
    assert_verbs(ExplicitGamma(G), G, rng)
    for bad, text in (
        (G[0], "dimension"),
        (G[:, :3], "square"),
        (np.triu(np.ones((1, 3, 3))), "symmetric"),
        (G * np.nan, "NaN"),
        (np.empty((0, 3, 3)), "one output"),
        (np.empty((2, 0, 0)), "one feature"),
    ):
        with pytest.raises(ValueError, match=text):
            ExplicitGamma(bad)


MAKERS = (CsrGamma, DenseGamma, explicit_gamma, make_gamma)


@pytest.mark.parametrize("make", MAKERS)
def test_bad_gradients(make):
    X = as_matrix(sp.csr_array(np.eye(4)))
    for D, error, text in (
        (np.ones((3, 2)), ValueError, "D must have shape"),
        (np.ones((5, 2)), ValueError, "D must have shape"),
        (np.ones(4), ValueError, "D must have 2"),
        (np.ones((4, 0)), ValueError, "one output"),
        (np.full((4, 2), np.nan), ValueError, "D contains NaN"),
        (np.full((4, 2), np.inf), ValueError, "D contains NaN"),
        (np.full((4, 2), 1j), TypeError, "D must hold real"),
        (np.full((4, 2), "a"), TypeError, "D must hold real"),
        (np.full((4, 2), None), TypeError, "D must hold real"),
        ([[1], [1, 2], [1], [1]], ValueError, "D must be a rectangular"),
        (sp.csr_array(np.ones((4, 2))), TypeError, "D must be a dense"),
    ):
        with pytest.raises(error, match=text):
            make(X, D)


@pytest.mark.parametrize("make", MAKERS)
def test_bad_data(make):
    for X in (None, np.eye(2), sp.eye_array(2), "X"):
        with pytest.raises(TypeError, match="X"):
            make(X, np.ones((2, 1)))
    for n_threads in (0, -1, 1.5, "two"):
        with pytest.raises((TypeError, ValueError), match="n_threads"):
            make(as_matrix(sp.eye_array(2)), np.ones((2, 1)), n_threads=n_threads)
    with pytest.raises(ValueError, match="activation must be one of"):
        make_gamma(as_matrix(np.eye(2)), np.ones((2, 1)), "cubic")
    with pytest.raises(TypeError, match="CsrMatrix"):
        CsrGamma(as_matrix(np.eye(2)), np.ones((2, 1)))


@pytest.mark.parametrize("make", MAKERS)
def test_bad_vectors(make):
    g = make(as_matrix(sp.csr_array(np.eye(4, 3))), np.ones((4, 2)))
    ones = {"B": np.ones((3, 2)), "h": np.ones(3), "w": np.ones(2)}
    verbs = {"matvecs": "B", "forms": "h", "combine": "wh"}
    for verb, names in verbs.items():
        for name in names:
            good = ones[name]
            for bad, error in (
                (np.ones(np.add(good.shape, 1)), ValueError),
                (np.ones(np.subtract(good.shape, 1)), ValueError),
                (good[None], ValueError),
                (np.float64(1), ValueError),
                (good * np.nan, ValueError),
                (good * 1j, TypeError),
                (good.astype(str), TypeError),
                (good.astype(object), TypeError),
                (None, TypeError),
            ):
                arguments = [bad if n == name else ones[n] for n in names]
                with pytest.raises(error, match=f"^{name} "):
                    getattr(g, verb)(*arguments)


def test_no_memory_is_read_that_was_not_set_up():
    """Objects that skipped or repeat their construction refuse to work."""
    X, D = as_matrix(sp.csr_array(np.eye(3))), np.ones((3, 1))
    for kind in (Gamma, CsrGamma, DenseGamma, ExplicitGamma):
        raw = kind.__new__(kind)
        for call in (lambda g: g.matvecs(np.empty((0, 0))), lambda g: g.forms([]),
                     lambda g: g.combine([], [])):  # fmt: skip
            with pytest.raises(ValueError, match="never initialized"):
                call(raw)
    for g, other in (
        (CsrGamma(X, D), (as_matrix(sp.csr_array((9, 9))), np.ones((9, 9)))),
        (ExplicitGamma(np.ones((1, 2, 2))), (np.ones((9, 9, 9)),)),
    ):
        with pytest.raises(ValueError, match="made once"):
            g.__init__(*other)
        assert not hasattr(g, "_set_shape")


def test_baseline_loops_agree():
    """The portable loops and the AVX2 ones differ by rounding only."""
    code = """
import numpy as np, scipy.sparse as sp, sys
sys.path.insert(0, {tests!r})
import test_gamma, test_features
from fastpoly.kernels.runtime import simd_level
arrays = {{"simd": np.array(simd_level())}}
for kind in test_gamma.KINDS:
    for activation in test_gamma.ACTIVATIONS:
        for dtype in (np.float32, np.float64):
            g, _, rng = test_gamma.problem(kind, activation, True, dtype, 7)
            name = f"{{kind}}-{{activation}}-{{dtype.__name__}}"
            arrays[name + "-dense"] = g.dense()
            arrays[name + "-forms"] = g.forms(np.arange(g.d))
            arrays[name + "-combine"] = g.combine(np.arange(g.m), np.arange(g.d))
arrays.update(test_features.everything())
np.savez({out!r}, **arrays)
"""
    avx2, baseline = (
        run_python(code, {"FASTPOLY_SIMD": level}, arrays=True) for level in ("avx2", "baseline")
    )
    assert baseline.pop("simd") == "baseline"
    if avx2.pop("simd") != "avx2":
        pytest.skip("this processor has only the portable loops")
    assert avx2.keys() == baseline.keys()
    for name, a in avx2.items():
        assert_allclose(a, baseline[name], rtol=1e-12, atol=1e-12 * np.abs(a).max(), err_msg=name)


def test_doctests():
    for module in (gamma, explicit):
        assert doctest.testmod(module).failed == 0
