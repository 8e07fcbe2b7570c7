"""Selection against grids, sign enumeration written out, a generic solver, and identities."""

import doctest
import itertools
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from sklearn.datasets import load_digits

import fastpoly
from fastpoly import Design, alpha_max, conditional_gradient, select_basis
from fastpoly.kernels.checks import encode_targets
from fastpoly.kernels.explicit import ExplicitGamma
from fastpoly.kernels.gamma import CsrGamma, DenseGamma
from fastpoly.kernels.losses import get_loss
from fastpoly.kernels.matrix import as_matrix
from fastpoly.kernels.penalties import L1L2, PENALTIES, complete_penalty, get_penalty
from fastpoly.selection import Request, ascent, methods, oracle

DUAL = {
    "l1": lambda q: np.abs(q).max(-1),
    "l1/l2": lambda q: np.sqrt((q**2).sum(-1)),
    "l1/linf": lambda q: np.abs(q).sum(-1),
}
GROUP = ["l1/l2", "l1/linf"]
FREE_METHODS = [method for method in oracle.METHODS if method not in ("best_data", "exact")]


def test_every_penalty_has_a_truth_here():
    assert set(DUAL) == set(PENALTIES)


def symmetric(seed, m, d, scale=1.0):
    G = np.random.default_rng(seed).standard_normal((m, d, d))
    return scale * (G + G.transpose(0, 2, 1)) / 2


def multiclass(seed, n=200, d=10, m=5, bases=0):
    """X and the logistic gradient of a random multi-class problem, `bases` steps into a fit."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    scores = (X @ rng.standard_normal((d, 6))) ** 2 @ rng.standard_normal((6, m))
    y = ((scores - scores.mean(0)) / scores.std(0)).argmax(1)  # classes of about equal size
    A = (X @ rng.standard_normal((d, bases))) ** 2
    outputs = A @ rng.standard_normal((bases, m)) * 0.1
    P = np.exp(outputs - outputs.max(1, keepdims=True))
    return X, P / P.sum(1, keepdims=True) - np.eye(m)[y]


def forms(G, H):
    return np.einsum("cij,ki,kj->kc", G, H, H)


def eigen_steps(G, Y, penalty, tol, steps):
    Q = forms(G, Y)
    points = ascent.Points(Y, Q, penalty.dual_norms(Q))
    return ascent.climb(G, points, penalty, tol, steps, ascent.top_eigenvectors).best_first()


def sphere(d, n=40_000):
    """A fine grid of the half sphere for d = 2, 3."""
    if d == 2:
        t = np.linspace(0, np.pi, n)
        return np.stack([np.cos(t), np.sin(t)], 1)
    k = np.arange(n) + 0.5
    z, t = 1 - k / n, np.pi * (1 + 5**0.5) * k
    r = np.sqrt(1 - z * z)
    return np.stack([r * np.cos(t), r * np.sin(t), z], 1)


# ---- the optimum ---------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("m", [1, 2, 5])
def test_grid(penalty, d, m):
    reached = []
    for seed in range(6):
        G = symmetric(seed, m, d)
        truth = DUAL[penalty](forms(G, sphere(d))).max()
        result = select_basis(ExplicitGamma(G), penalty, tol=1e-6)
        # A bound is never below the value that comes with it: judge it beside a poorer one.
        assert select_basis(ExplicitGamma(G), penalty, "l1").bound >= truth * (1 - 1e-12)
        reached.append(result.value / truth)
    assert min(reached) > 0.9
    assert np.median(reached) > 1 - 1e-3
    assert max(reached) < 1 + 2e-3


@pytest.mark.parametrize("m", [1, 2, 3, 6])
def test_exact_is_the_best_sign_vector(m):
    for seed in range(3):
        G = symmetric(seed, m, 4)
        truth = max(
            np.linalg.eigvalsh(np.tensordot(signs, G, 1))[-1]
            for signs in itertools.product([1.0, -1.0], repeat=m)
        )
        result = select_basis(ExplicitGamma(G), "l1/linf", "exact")
        assert result.value == pytest.approx(truth, rel=1e-12)
        assert result.bound == pytest.approx(truth, rel=1e-12)


def test_exact_in_blocks(monkeypatch):
    G = symmetric(0, 7, 3)
    whole = select_basis(ExplicitGamma(G), "l1/linf", "exact")
    monkeypatch.setattr(ascent, "BLOCK_DOUBLES", 9 * 5)
    blocks = select_basis(ExplicitGamma(G), "l1/linf", "exact")
    np.testing.assert_allclose(blocks.h, whole.h, atol=1e-12)


@pytest.mark.parametrize("method", ["l1", "refine", "exact"])
def test_l1_is_the_largest_eigenvalue(method):
    G = symmetric(3, 6, 8)
    truth = np.abs(np.linalg.eigvalsh(G)).max()
    result = select_basis(ExplicitGamma(G), "l1", method)
    assert result.value == pytest.approx(truth, rel=1e-12)
    assert result.bound == pytest.approx(truth, rel=1e-12)
    X, D = multiclass(0, d=30)
    G = np.einsum("ni,nj,nc->cij", X, X, D)
    result = select_basis(DenseGamma(as_matrix(X), D), "l1", method, tol=1e-3, random_state=0)
    truth = np.abs(np.linalg.eigvalsh(G)).max()
    assert truth * (1 - 1e-3) <= result.value <= truth * (1 + 1e-10) <= result.bound * (1 + 2e-10)


@pytest.mark.parametrize("implicit", [False, True])
def test_against_a_generic_solver(implicit):
    reached = []
    for seed in range(4):
        X, D = multiclass(seed, d=6, m=4)
        G = np.einsum("ni,nj,nc->cij", X, X, D)

        def loss(h, G=G):
            h = h / np.linalg.norm(h)
            return -np.log(DUAL["l1/l2"](forms(G, h[None])[0]))

        starts = np.random.default_rng(seed).standard_normal((12, 6))
        truth = max(np.exp(-minimize(loss, h).fun) for h in starts)
        gamma = DenseGamma(as_matrix(X), D) if implicit else ExplicitGamma(G)
        result = select_basis(gamma, "l1/l2", tol=1e-5, random_state=0)
        assert result.bound >= truth * (1 - 1e-5)
        reached.append(result.value / truth)
    assert np.median(reached) > 0.9999
    assert min(reached) > 0.97


@pytest.mark.parametrize("implicit", [False, True])
def test_refine_is_nearly_exact(implicit):
    refined, plain = [], []
    for seed, (m, bases) in enumerate(itertools.product([3, 5, 7], [0, 2, 5, 10])):
        X, D = multiclass(seed, d=20, m=m, bases=bases)
        explicit = Design(X).gamma(D)
        gamma = DenseGamma(as_matrix(X), D) if implicit else explicit
        exact = select_basis(explicit, "l1/linf", "exact")
        result = select_basis(gamma, "l1/linf", random_state=0)
        start = select_basis(gamma, "l1/linf", "l1", random_state=0)
        assert result.value <= exact.value * (1 + 1e-10) <= start.bound * (1 + 1e-6)
        refined.append(result.value / exact.value)
        plain.append(start.value / exact.value)
    assert np.median(refined) >= 0.999
    assert min(refined) > 0.95
    assert np.median(refined) > np.median(plain) + 0.01  # because of the ascent, not by chance


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(1, 6),
    d=st.integers(1, 7),
    penalty=st.sampled_from(GROUP),
    implicit=st.booleans(),
    log_scale=st.integers(-9, 9),
)
def test_refine_is_never_below_l1_nor_above_its_bound(seed, m, d, penalty, implicit, log_scale):
    X, D = multiclass(seed, n=12, d=d, m=m)
    D = D * 10.0**log_scale
    gamma = DenseGamma(as_matrix(X), D) if implicit else Design(X).gamma(D)
    plain = select_basis(gamma, penalty, "l1", random_state=0)
    result = select_basis(gamma, penalty, "refine", random_state=0)
    assert result.value >= plain.value * (1 - 1e-10)
    assert plain.bound >= result.value * (1 - 1e-9)  # judged beside the poorer value
    assert np.linalg.norm(result.h) == pytest.approx(1, abs=1e-12)
    H = np.random.default_rng(seed).standard_normal((50, d))
    H /= np.linalg.norm(H, axis=1, keepdims=True)
    random = max(DUAL[penalty](gamma.forms(h)) for h in H)
    assert random <= result.bound * (1 + 1e-9)


# ---- the steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("anova", [False, True])
def test_gradient_of_the_criterion_is_a_combination(penalty, anova):
    X, D = multiclass(1, n=40, d=6, m=4)
    criterion = get_penalty(penalty).criterion
    for gamma in (
        DenseGamma(as_matrix(X), D, anova),
        CsrGamma(as_matrix(sp.csr_array(X)), D, anova),
    ):
        h = np.random.default_rng(2).standard_normal(6) / 3
        gradient = 2 * gamma.combine(criterion(gamma.forms(h))[1], h)
        numeric = [
            (criterion(gamma.forms(h + e))[0] - criterion(gamma.forms(h - e))[0]) / 2e-6
            for e in 1e-6 * np.eye(6)
        ]
        np.testing.assert_allclose(gradient, numeric, rtol=1e-5, atol=1e-5 * np.abs(gradient).max())


class Plain:
    """A user's penalty: only the required methods of a Penalty."""

    def __init__(self, penalty):
        for verb in ("value", "dual_norm", "prox", "project", "criterion"):
            setattr(self, verb, getattr(penalty, verb))


@pytest.mark.parametrize("penalty", PENALTIES)
def test_rows_at_once_are_the_penalty(penalty):
    q = np.random.default_rng(0).standard_normal((5, 4)) * [[1e-3], [1], [10], [1e5], [0]]
    known = get_penalty(penalty)
    plain = complete_penalty(Plain(known))
    assert complete_penalty(known) is known
    np.testing.assert_allclose(known.dual_norms(q), DUAL[penalty](q))
    np.testing.assert_allclose(plain.dual_norms(q), DUAL[penalty](q))
    for threshold in (1.0, 0.3, 1e-6):
        W = known.slopes(q, threshold)
        np.testing.assert_allclose(W, plain.slopes(q, threshold))
        np.testing.assert_allclose((W * q).sum(1), DUAL[penalty](q))
    # Sharp weights are a subgradient: w'p <= dual norm of p for every p.
    for p in np.random.default_rng(1).standard_normal((200, 4)):
        assert (W @ p <= DUAL[penalty](p) * (1 + 1e-9)).all()


@pytest.mark.parametrize("penalty", GROUP)
def test_plain_object_as_penalty(penalty):
    X, D = multiclass(5, d=8)
    for gamma in (Design(X).gamma(D), DenseGamma(as_matrix(X), D)):
        options = {"n_vectors": 4, "sign_budget": 0, "random_state": 0}
        known = select_basis(gamma, penalty, **options)
        plain = select_basis(gamma, Plain(get_penalty(penalty)), **options)
        np.testing.assert_allclose(plain.H, known.H, atol=1e-8)
        np.testing.assert_allclose(plain.values, known.values)
        poor = select_basis(gamma, Plain(get_penalty(penalty)), "l1", random_state=0)
        assert poor.bound >= known.value


@pytest.mark.parametrize("penalty", GROUP)
@pytest.mark.parametrize("method", ["refine", "random+refine"])
@pytest.mark.parametrize("implicit", [False, True])
def test_more_steps_are_never_worse(penalty, method, implicit):
    gained = []
    first = "l1" if method == "refine" else "random"
    for seed in range(4):
        X, D = multiclass(seed, d=25, m=6, bases=3)
        gamma = DenseGamma(as_matrix(X), D) if implicit else Design(X).gamma(D)
        plain = select_basis(gamma, penalty, first, random_state=3).value
        values = [plain] + [
            select_basis(gamma, penalty, method, tol=1e-9, max_iter=k, random_state=3).value
            for k in (0, 1, 2, 3, 5, 6, 8, 12)
        ]
        gains = np.diff(values) / plain
        assert gains.min() > -1e-10
        gained.append(gains[1:].sum())
    assert max(gained) > 1e-4


@pytest.mark.parametrize("penalty", PENALTIES)
def test_eigen_steps_climb(penalty):
    G, known = symmetric(2, 5, 7), get_penalty(penalty)
    Y = np.linalg.qr(np.random.default_rng(0).standard_normal((7, 3)))[0].T
    values = np.sort(DUAL[penalty](forms(G, Y)))[::-1]
    for steps in (1, 2, 5):
        points, q, reached = eigen_steps(G, Y, known, 1e-9, steps)
        np.testing.assert_allclose(q, forms(G, points), atol=1e-10)
        np.testing.assert_allclose(reached, DUAL[penalty](q))
        assert (reached >= values - 1e-10).all()
        values = reached
    # A fixed point: h is an eigenvector of its own M.
    h = eigen_steps(G, Y, known, 1e-15, 200).Y[0]
    M = np.tensordot(known.slopes(forms(G, h[None]), 1e-6)[0], G, 1)
    np.testing.assert_allclose(M @ h, (h @ M @ h) * h, atol=1e-5)


def test_ritz_steps_stay_on_the_sphere():
    G = symmetric(4, 6, 9)
    Y = np.linalg.eigh(G)[1][:, :, -1]
    for _ in range(4):
        Y = ascent.ritz_vectors(G, get_penalty("l1/linf").slopes(forms(G, Y), 0.5), Y)
        np.testing.assert_allclose(np.linalg.norm(Y, axis=1), 1, atol=1e-12)


def test_ritz_steps_climb():
    """l1/l2 has nothing to smooth: there every step is monotone, from every start."""
    G, known = symmetric(4, 6, 9), get_penalty("l1/l2")
    Y = np.linalg.qr(np.random.default_rng(0).standard_normal((9, 5)))[0].T
    values = start = DUAL["l1/l2"](forms(G, Y))
    for _ in range(5):
        Y = ascent.ritz_vectors(G, known.slopes(forms(G, Y)), Y)
        reached = DUAL["l1/l2"](forms(G, Y))
        assert (reached >= values * (1 - 1e-12)).all()
        values = reached
    assert (values > 1.05 * start).all()


def test_smoothing_leaves_poor_fixed_points():
    """Where an eigenvector of Gamma_c has signs (+, -, ..., -), M = 2 Gamma_c: signs stay there."""
    known, sharp, smooth = get_penalty("l1/linf"), [], []
    for seed in range(20):
        X, D = multiclass(seed, d=12, m=4, bases=5)
        G = np.einsum("ni,nj,nc->cij", X, X, D)
        values, vectors = np.linalg.eigh(G)
        c, j = np.unravel_index(np.abs(values).argmax(), values.shape)
        start = vectors[c, :, j][None]
        exact = select_basis(ExplicitGamma(G), "l1/linf", "exact").value
        sharp.append(eigen_steps(G, start, known, 1e-6, 50).values[0] / exact)
        smooth.append(ascent.ascend(G, start, known, 1e-6, 50).values[0] / exact)
    assert np.mean(smooth) > np.mean(sharp) + 0.01
    assert max(smooth) <= 1 + 1e-10


def test_subspace_is_the_projected_problem():
    X, D = multiclass(0, n=30, d=7, m=3)
    gamma = DenseGamma(as_matrix(X), D)
    G = gamma.dense()
    space = methods.Subspace(gamma, 3)
    rng = np.random.default_rng(0)
    x = rng.standard_normal(7)
    assert space.add(x)
    assert not space.add(-2 * x)
    assert space.add(rng.standard_normal(7))
    assert space.add(rng.standard_normal(7))
    assert not space.add(rng.standard_normal(7))  # full
    Q = space.Q
    np.testing.assert_allclose(Q @ Q.T, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(space.A, np.einsum("pi,cij,qj->cpq", Q, G, Q), atol=1e-10)
    y, w = np.array([0.6, 0.0, 0.8]), np.array([1.0, -2.0, 0.5])
    M, h = np.tensordot(w, G, 1), y @ Q
    residuals = space.residuals(np.array([y, y[::-1]]), np.array([w, w]))
    np.testing.assert_allclose(residuals[0], M @ h - (h @ M @ h) * h, atol=1e-10)
    h = y[::-1] @ Q
    np.testing.assert_allclose(residuals[1], M @ h - (h @ M @ h) * h, atol=1e-10)


# ---- difficult data ------------------------------------------------------------------------------


def ratings(seed, n=400, users=25, items=30, m=4):
    rng = np.random.default_rng(seed)
    u, i = rng.integers(0, users, n), rng.integers(0, items, n)
    score = (rng.standard_normal((users, 2))[u] * rng.standard_normal((items, 2))[i]).sum(1)
    level = np.digitize(score, np.quantile(score, np.arange(1, m + 1) / (m + 1)))
    indices = np.stack([u, users + i], 1).ravel()
    X = sp.csr_array((np.ones(2 * n), indices, np.arange(0, 2 * n + 1, 2)), (n, users + items))
    return X, np.where(level[:, None] <= np.arange(m), -0.5, 0.5)


@pytest.mark.parametrize("fit_lower", [None, "augment"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_users_and_items(fit_lower, penalty):
    """Bipartite Gamma_c have eigenvalues in pairs +-sigma."""
    X, D = ratings(0)
    gamma = Design(X, "anova", fit_lower=fit_lower).gamma(D)
    assert isinstance(gamma, CsrGamma)
    G = gamma.dense()
    if fit_lower is None:
        spectrum = np.linalg.eigvalsh(G[0])
        np.testing.assert_allclose(spectrum, -spectrum[::-1], atol=1e-10)
    result = select_basis(gamma, penalty, random_state=0)
    if penalty == "l1/l2":
        starts = np.random.default_rng(0).standard_normal((60, gamma.d))
        starts /= np.linalg.norm(starts, axis=1, keepdims=True)
        truth = eigen_steps(G, starts, get_penalty(penalty), 1e-9, 60).values[0]
    else:
        truth = select_basis(gamma, penalty, "exact").value
    assert 0.99 * truth <= result.value <= truth * (1 + 1e-6)
    assert result.bound >= truth * (1 - 1e-6)


@pytest.mark.parametrize(
    ("method", "penalty"),
    # l1/l2 has no exact method.
    sorted(set(itertools.product(oracle.METHODS, PENALTIES)) - {("exact", "l1/l2")}),
)
def test_scale_does_not_matter(method, penalty):
    """A fixed Huber threshold would turn l1/linf into l1/l2 for small gradients."""
    X, D = multiclass(3, n=60, d=9, m=6)
    design = Design(X)
    one = select_basis(design.gamma(D), penalty, method, data=design, random_state=0)
    for scale in (1e-7, 1e7):
        gamma = design.gamma(scale * D)
        other = select_basis(gamma, penalty, method, data=design, random_state=0)
        np.testing.assert_allclose(other.h, one.h, atol=1e-6)
        assert other.value == pytest.approx(scale * one.value)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_tied_and_rank_one(penalty):
    x = np.array([0.6, 0.0, -0.8])
    result = select_basis(ExplicitGamma([np.outer(x, x), -2 * np.outer(x, x)]), penalty)
    assert abs(result.h @ x) == pytest.approx(1)
    assert result.value == pytest.approx(DUAL[penalty](np.array([1.0, -2.0])))
    assert result.bound == pytest.approx(result.value)
    tied = select_basis(
        ExplicitGamma([np.diag([1.0, -1.0]), np.diag([1.0, -1.0 - 1e-12])]), penalty
    )
    assert tied.value == pytest.approx(DUAL[penalty](np.ones(2)))


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("method", [*FREE_METHODS, "best_data"])
def test_zero(method, penalty, implicit):
    X, D = np.zeros((4, 3)), np.ones((4, 2))
    gamma = DenseGamma(as_matrix(X), D) if implicit else Design(X).gamma(D)
    result = select_basis(gamma, penalty, method, data=X, random_state=0)
    assert result.value == 0
    assert np.linalg.norm(result.h) == pytest.approx(1)
    assert (result.q == 0).all()
    assert result.bound == (0 if method in ("refine", "l1") else np.inf)


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("method", ["refine", "l1", "random+refine", "exact"])
def test_one_feature(method, implicit):
    X, D = np.array([[1.0], [2.0]]), np.array([[1.0, -1.0], [1.0, 0.0]])
    gamma = DenseGamma(as_matrix(X), D) if implicit else Design(X).gamma(D)
    result = select_basis(gamma, "l1/linf", method, random_state=0)
    np.testing.assert_allclose(result.h, [1.0])
    assert result.value == pytest.approx(6)


# ---- identities ----------------------------------------------------------------------------------


@pytest.mark.parametrize("implicit", [False, True])
def test_one_output_makes_all_penalties_equal(implicit):
    X, D = multiclass(0, d=12)
    D = D[:, :1]
    gamma = DenseGamma(as_matrix(X), D) if implicit else Design(X).gamma(D)
    results = [select_basis(gamma, penalty, random_state=0) for penalty in PENALTIES]
    for other in results[1:]:
        np.testing.assert_array_equal(other.h, results[0].h)
        assert other.value == pytest.approx(results[0].value)
        assert other.bound == pytest.approx(results[0].bound)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("implicit", [False, True])
def test_permutations(penalty, implicit):
    X, D = multiclass(11, d=9, m=5)
    features = np.random.default_rng(0).permutation(9)
    outputs = np.random.default_rng(1).permutation(5)

    def select(X, D):
        gamma = DenseGamma(as_matrix(X), D) if implicit else Design(X).gamma(D)
        return select_basis(gamma, penalty, tol=1e-8, max_iter=100, random_state=0)

    one, two = select(X, D), select(X[:, features], D[:, outputs])
    assert two.value == pytest.approx(one.value, rel=1e-6)
    np.testing.assert_allclose(two.h, one.h[features], atol=2e-3)
    np.testing.assert_allclose(two.q, one.q[outputs], atol=1e-2 * one.value)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_forms_of_gamma_agree(penalty):
    X, D = multiclass(2, d=60, m=4)
    X[np.abs(X) < 0.5] = 0
    values = [
        select_basis(gamma, penalty, tol=1e-4, random_state=0).value
        for gamma in (
            ExplicitGamma(np.einsum("ni,nj,nc->cij", X, X, D)),
            DenseGamma(as_matrix(X), D),
            CsrGamma(as_matrix(sp.csr_array(X)), D),
        )
    ]
    np.testing.assert_allclose(values, values[0], rtol=1e-3)


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("method", FREE_METHODS)
def test_result_is_what_it_says(method, penalty, implicit):
    X, D = multiclass(4, d=14)
    X.flags.writeable = D.flags.writeable = False
    gamma = DenseGamma(as_matrix(X), D) if implicit else Design(X).gamma(D)
    result = select_basis(gamma, penalty, method, random_state=7)
    G = np.einsum("ni,nj,nc->cij", X, X, D)
    assert result[0] is result.h
    np.testing.assert_allclose(result.q, forms(G, result.h[None])[0], rtol=1e-9, atol=1e-9)
    assert result.value == pytest.approx(DUAL[penalty](result.q))
    assert result.h[np.abs(result.h).argmax()] > 0
    assert np.isfinite(result.bound) == (method in ("refine", "l1"))
    again = select_basis(gamma, penalty, method, random_state=7)
    np.testing.assert_array_equal(again.h, result.h)
    assert result.n_matvecs == 0 or implicit
    if method in ("refine", "l1"):
        assert result.vectors.shape == (gamma.m, gamma.d)
        warm = select_basis(gamma, penalty, method, start=result.vectors, random_state=7)
        assert warm.value == pytest.approx(result.value, rel=1e-2)


def test_warm_start_costs_no_more_passes():
    X, D = ratings(1, n=3000, users=150, items=200)
    gamma = Design(X, "anova").gamma(D)
    cold = [select_basis(gamma, "l1", random_state=seed) for seed in range(5)]
    warm = [select_basis(gamma, "l1", start=cold[0].vectors, random_state=s) for s in range(5)]
    assert sum(r.n_matvecs for r in warm) <= sum(r.n_matvecs for r in cold)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("fit_lower", [None, "augment"])
@pytest.mark.parametrize("sparse", [False, True])
def test_best_data_is_the_best_row(penalty, fit_lower, sparse):
    X, D = multiclass(6, n=150, d=5, m=4)
    X[X < 0.3] = 0
    X[[3, 70]] = 0
    design = Design(sp.csr_array(X) if sparse else X, fit_lower=fit_lower)
    rows = np.hstack([np.ones((150, 1)), X]) if fit_lower else X
    G = np.einsum("ni,nj,nc->cij", rows, rows, D)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    H = rows / np.where(norms > 0, norms, 1)
    truth = DUAL[penalty](forms(G, H))
    implicit = (CsrGamma if sparse else DenseGamma)(design.matrix, D)
    for result in (
        select_basis(implicit, penalty, "best_data"),
        select_basis(design.gamma(D), penalty, "best_data", data=design),
        select_basis(implicit, penalty, "best_data", data=rows),
    ):
        assert result.value == pytest.approx(truth.max())
        np.testing.assert_allclose(result.h, H[truth.argmax()], atol=1e-12)


def test_refine_beats_the_other_heuristics():
    X, D = multiclass(8, d=20, m=7)
    design = Design(X)
    value = {
        method: select_basis(design.gamma(D), "l1/linf", method, data=design, random_state=0).value
        for method in oracle.METHODS
    }
    assert value["refine"] >= max(value.values()) * (1 - 1e-9)
    assert value["refine"] > value["best_data"]
    assert value["random+refine"] > value["random"]


# ---- methods of penalties -----------------------------------------------------------------------


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("m", [1, 2, 5])
def test_dual_ratios_and_vertices(penalty, m):
    known = get_penalty(penalty)
    q = np.random.default_rng(m).standard_normal((500, m)) ** 3
    dual = DUAL[penalty](q)
    for verbs in (known, complete_penalty(Plain(known))):
        to_sum, to_euclidean = verbs.dual_ratios(m)
        assert (dual <= to_sum * np.abs(q).sum(1) * (1 + 1e-12)).all()
        assert (dual <= to_euclidean * np.linalg.norm(q, axis=1) * (1 + 1e-12)).all()
    extremes = np.vstack([np.ones((1, m)), np.eye(m)])  # where the ratios are reached
    reached = DUAL[penalty](extremes)
    ratios = known.dual_ratios(m)
    assert np.max(reached / np.abs(extremes).sum(1)) == pytest.approx(ratios[0])
    assert np.max(reached / np.linalg.norm(extremes, axis=1)) == pytest.approx(ratios[1])
    count = known.n_vertices(m)
    if count is None:
        with pytest.raises(NotImplementedError, match="no list of vertices"):
            known.vertices(m)
        return
    S = known.vertices(m)
    assert S.shape == (count, m)
    np.testing.assert_allclose(np.abs(q @ S.T).max(1), dual)
    np.testing.assert_array_equal(known.vertices(m, 1, 3), S[1:3])


def test_a_penalty_may_bring_its_own_matrix_verbs():
    class Fast(Plain):
        def dual_norms(self, Q):
            return 7 * np.ones(len(Q))

    assert complete_penalty(Fast(L1L2())).dual_norms(np.zeros((2, 3))).tolist() == [7, 7]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("m", [1, 2, 4])
def test_upper_bound_against_a_grid(penalty, m):
    for seed, kind in itertools.product(range(10), ("indefinite", "parallel", "thin")):
        G = symmetric(seed, m, 3)
        if kind == "parallel":  # all q_c large for one h
            G = np.random.default_rng(seed).standard_normal((m, 1, 1)) * G[:1]
        elif kind == "thin":
            G = np.einsum("ci,cj->cij", G[:, 0], G[:, 0])
        truth = DUAL[penalty](forms(G, sphere(3, 20_000))).max()
        for verbs in (get_penalty(penalty), complete_penalty(Plain(get_penalty(penalty)))):
            bound = ascent.upper_bound(G, verbs, *np.linalg.eigh(G))
            assert bound >= truth * (1 - 1e-9)
            assert bound <= truth * np.sqrt(m) * (2 if penalty == "l1/linf" else 1.01)


# ---- blocks --------------------------------------------------------------------------------------


def gammas():
    """Every kind of Gamma of two problems: dense features; users x items."""
    X, D = multiclass(3, n=300, d=30, m=5, bases=2)
    sparse = X * (np.abs(X) > 0.7)
    R, E = ratings(2, n=2500, users=60, items=70)
    return {
        "explicit": Design(X).gamma(D),
        "large explicit": Design(np.hstack([X, X**2]), "anova").gamma(D),
        "dense rows": DenseGamma(as_matrix(X), D),
        "csr": CsrGamma(as_matrix(sp.csr_array(sparse)), D),
        "csr anova": CsrGamma(as_matrix(sp.csr_array(sparse), True), D, True),
        "pairs": CsrGamma(as_matrix(R), E, True),
        "pairs and a constant": CsrGamma(as_matrix(R, True), E, True),
    }


GAMMAS = gammas()


def alike(gamma, H):
    """Cosines of the activations where there are rows, else of the vectors, (b, b)."""
    S = H
    if not isinstance(gamma, ExplicitGamma):
        X = gamma.X
        rows = sp.csr_array(X.arrays).toarray() if X.sparse else X.array
        rows = np.hstack([np.ones((X.n, int(X.augment))), rows])
        Z = rows @ H.T
        S = Z.T**2
        if gamma.anova:
            S = (Z.T**2 - H**2 @ (rows**2).T) / 2
    S = S / np.linalg.norm(S, axis=1, keepdims=True)
    return np.abs(S @ S.T)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("kind", GAMMAS)
def test_block(kind, penalty):
    gamma = GAMMAS[kind]
    G = gamma.dense()
    one = select_basis(gamma, penalty, random_state=0)
    result = select_basis(gamma, penalty, n_vectors=8, random_state=0)
    b = len(result.H)
    assert b == 8
    assert result.H.shape == (b, gamma.d)
    np.testing.assert_array_equal(result.H[0], result.h)
    np.testing.assert_array_equal(result.Q[0], result.q)
    assert result.value == result.values[0]
    assert result.value >= one.value * (1 - 2e-3)
    assert result.value <= one.bound * (1 + 1e-9)
    np.testing.assert_allclose(np.linalg.norm(result.H, axis=1), 1, atol=1e-12)
    assert (result.H.max(axis=1) >= -result.H.min(axis=1)).all()
    np.testing.assert_allclose(result.Q, forms(G, result.H), atol=1e-9 * np.abs(G).max())
    assert (np.diff(result.values) <= 1e-9 * result.value).all()
    cosines = alike(gamma, result.H) - np.eye(b)
    if penalty == "l1":
        own = result.Q[np.arange(b), result.outputs]
        np.testing.assert_allclose(result.values, np.abs(own))
        cosines *= result.outputs[:, None] == result.outputs
    else:
        assert (result.outputs == -1).all()
        np.testing.assert_allclose(result.values, DUAL[penalty](result.Q))
    assert cosines.max() < 0.9 + 1e-9
    again = select_basis(gamma, penalty, n_vectors=8, random_state=0)
    np.testing.assert_array_equal(again.H, result.H)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("kind", GAMMAS)
def test_threshold(kind, penalty):
    gamma = GAMMAS[kind]
    every = select_basis(gamma, penalty, n_vectors=8, random_state=0)
    level = (every.values[3] + every.values[4]) / 2
    some = select_basis(gamma, penalty, n_vectors=8, threshold=level, random_state=0)
    np.testing.assert_allclose(some.values, every.values[:4])
    first = select_basis(gamma, penalty, n_vectors=8, threshold=1e9, random_state=0)
    assert len(first.H) == 1
    assert first.value == pytest.approx(every.value)


@pytest.mark.parametrize("kind", ["explicit", "dense rows", "pairs"])
def test_l1_blocks_are_the_largest_eigenvalues(kind):
    gamma = GAMMAS[kind]
    spectra = np.linalg.eigvalsh(gamma.dense())
    if kind == "pairs":  # of a pair +-sigma one is enough
        spectra = spectra[:, spectra.shape[1] // 2 :]
    truth = np.sort(np.abs(spectra).ravel())[::-1]
    result = select_basis(gamma, "l1", n_vectors=10, random_state=0)
    assert len(result.H) == 10
    np.testing.assert_allclose(
        result.values, truth[:10], rtol=1e-12 if kind == "explicit" else 0.05
    )
    np.testing.assert_allclose(result.values[:3], truth[:3], rtol=5e-3)


@pytest.mark.parametrize("implicit", [False, True])
def test_for_l1_one_vector_may_serve_two_outputs(implicit):
    """Each output has its own entry; only vectors of the same output are compared."""
    X = np.diag([3.0, 2.0, 1.0])
    D = np.array([[1.0, -0.9], [1.0, -0.9], [1.0, -0.9]])
    gamma = DenseGamma(as_matrix(X), D) if implicit else Design(X).gamma(D)
    result = select_basis(gamma, "l1", n_vectors=4, random_state=0)
    np.testing.assert_allclose(result.values, [9.0, 8.1, 4.0, 3.6])
    np.testing.assert_array_equal(result.outputs, [0, 1, 0, 1])
    np.testing.assert_allclose(result.H[0], result.H[1], atol=1e-8)
    group = select_basis(gamma, "l1/l2", n_vectors=4, random_state=0)
    np.testing.assert_allclose(np.sort(group.H.argmax(axis=1)), [0, 1, 2])


def test_pairs_of_opposite_eigenvalues_are_one_unit():
    """(u, v) and (u, -v) have activations that differ in sign only."""
    X, D = ratings(0)
    gamma = Design(X, "anova").gamma(D)
    h = select_basis(gamma, "l1", random_state=0).h
    twin = np.where(np.arange(gamma.d) < 25, h, -h)
    assert abs(h @ twin) < 0.3
    S = oracle.make_signatures(gamma, np.random.default_rng(0))(np.array([h, twin]))
    assert S[0] @ S[1] == pytest.approx(-1)
    assert ascent.thin(S, 2, oracle.SAME_COSINE) == [0]
    assert ascent.thin(S, 2, oracle.SAME_COSINE, np.array([0, 1])) == [0, 1]


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("augment", [False, True])
def test_sampled_rows_are_rows(sparse, augment):
    X = np.round(np.random.default_rng(0).standard_normal((100, 4)))
    X[::7] = 0
    sample = oracle.sample_rows(
        as_matrix(sp.csr_array(X) if sparse else X, augment), 40, np.random.default_rng(1)
    )
    rows = np.unique(np.random.default_rng(1).integers(100, size=40))
    have = sp.csr_array(sample.arrays, shape=(sample.n, 4)).toarray() if sparse else sample.array
    np.testing.assert_array_equal(have, X[rows])
    assert sample.d == 4 + augment


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_a_block_of_nothing(penalty, implicit):
    X, D = np.zeros((4, 3)), np.ones((4, 2))
    gamma = DenseGamma(as_matrix(X), D) if implicit else Design(X).gamma(D)
    result = select_basis(gamma, penalty, n_vectors=4, random_state=0)
    assert result.H.shape == (1, 3)
    assert result.value == result.bound == 0


def test_forms_a_few_vectors_at_a_time(monkeypatch):
    G, Y = symmetric(0, 3, 4), np.random.default_rng(0).standard_normal((11, 4))
    whole = ascent.forms_of(G, Y)
    np.testing.assert_allclose(whole, forms(G, Y))
    monkeypatch.setattr(ascent, "BLOCK_DOUBLES", 3 * 4 * 4)
    np.testing.assert_allclose(ascent.forms_of(G, Y), whole)
    assert select_basis(ExplicitGamma(G), n_vectors=3).H.shape == (3, 4)


def test_distinct_maxima_and_thin():
    Y = np.array([[1.0, 0.0], [0.999, 0.045], [0.0, 1.0], [0.0, -1.0]])
    assert ascent.thin(Y, 9, 0.9) == [0, 2]
    assert ascent.thin(Y, 1, 0.9) == [0]
    assert ascent.thin(Y, 9, 0.9, np.array([0, 1, 1, 0])) == [0, 1, 2, 3]
    values = np.array([1.0, 2.0, 3.0, 4.0])
    points = ascent.Points(Y, Y, values).distinct(5)
    np.testing.assert_array_equal(points.values, [4.0, 2.0])


@pytest.mark.parametrize("implicit", [False, True])
def test_blocks_of_one_output_are_the_same_for_all_penalties(implicit):
    X, D = multiclass(0, d=12)
    gamma = DenseGamma(as_matrix(X), D[:, :1]) if implicit else Design(X).gamma(D[:, :1])
    results = [select_basis(gamma, p, n_vectors=5, random_state=0) for p in PENALTIES]
    results.append(select_basis(gamma, Plain(L1L2()), n_vectors=5, random_state=0))
    truth = np.sort(np.abs(np.linalg.eigvalsh(gamma.dense()[0])))[::-1]
    for result in results:
        np.testing.assert_array_equal(result.H, results[0].H)
        np.testing.assert_allclose(result.values, np.abs(result.Q[:, 0]))
        np.testing.assert_allclose(result.values[:2], truth[:2], rtol=5e-3)
    assert [r.outputs[0] for r in results] == [0, -1, -1, -1]


def test_a_block_violates_more_than_eigenvectors():
    """Total dual norm of ten vectors: ascended and diverse against the method "l1"."""
    gamma = GAMMAS["explicit"]
    block = select_basis(gamma, "l1/l2", n_vectors=10, random_state=0)
    plain = select_basis(gamma, "l1/l2", "l1", n_vectors=10, random_state=0)
    assert block.value > 1.005 * plain.value
    assert block.values.sum() > plain.values.sum()


# ---- exact signs ---------------------------------------------------------------------------------


def by_hand(G):
    """The best |q|_1: all signs, written out."""
    return max(
        np.abs(np.linalg.eigvalsh(np.tensordot(signs, G, 1))).max()
        for signs in itertools.product([1.0, -1.0], repeat=len(G))
    )


@pytest.mark.parametrize("n_vectors", [1, 6])
def test_signs_within_the_budget_are_exact(n_vectors):
    X, D = multiclass(1, d=14, m=6, bases=4)
    gamma = Design(X).gamma(D)
    truth = by_hand(gamma.dense())
    flops = ascent.enumeration_flops(get_penalty("l1/linf"), 6, 14)
    options = {"n_vectors": n_vectors, "random_state": 0}
    exact = select_basis(gamma, "l1/linf", sign_budget=flops, **options)
    assert exact.value == pytest.approx(truth, rel=1e-12)
    assert exact.bound == pytest.approx(truth, rel=1e-12)
    assert len(exact.H) == n_vectors
    loose = select_basis(gamma, "l1/linf", sign_budget=0.99 * flops, **options)
    assert loose.bound > 1.01 * truth
    assert loose.value <= truth * (1 + 1e-12)
    named = select_basis(gamma, "l1/linf", "exact", n_vectors=n_vectors)
    assert named.value == pytest.approx(truth, rel=1e-12)
    assert 1 <= len(named.H) <= n_vectors


def test_the_budget_does_not_concern_other_penalties():
    X, D = multiclass(1, d=8, m=4)
    gamma = Design(X).gamma(D)
    few, many = (select_basis(gamma, "l1/l2", sign_budget=b, random_state=0) for b in (0, 1e12))
    np.testing.assert_array_equal(few.h, many.h)


# ---- the thorough search -------------------------------------------------------------------------


def overlapping_classes(n=264, d=10, m=11, seed=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % m
    centers, spread = 1.2 * rng.standard_normal((m, d)), 1 + 0.5 * rng.random((m, d))
    X = centers[y] + spread[y] * rng.standard_normal((n, d))
    return np.hstack([np.ones((n, 1)), X]), y


def trained(X, y, rounds=8):
    """Gamma of an l1/l2 model with alpha = 1 that was trained until the plain search finds nothing.

    min over H, V of the loss + 1/2 sum_r (|v_r|^2 + |h_r|^4), by blocks and L-BFGS.
    """
    d, m = X.shape[1], y.max() + 1
    loss, Y, design = get_loss("multiclass_logistic"), encode_targets("label", y, m), Design(X)
    H, V = np.zeros((0, d)), np.zeros((0, m))

    def objective(x):
        H, V = x[: -k * m].reshape(k, d), x[-k * m :].reshape(k, m)
        Z, size = X @ H.T, (H**2).sum(1)
        value, D = loss.value_grad(Y, Z**2 @ V)
        grad_H = 2 * ((D @ V.T) * Z).T @ X + 2 * size[:, None] * H
        grad_V = (Z**2).T @ D + V
        value += (size @ size + (V**2).sum()) / 2
        return value, np.concatenate([grad_H.ravel(), grad_V.ravel()])

    for seed in range(rounds):
        gamma = design.gamma(loss.value_grad(Y, (X @ H.T) ** 2 @ V)[1])
        new = select_basis(gamma, "l1/l2", n_vectors=20, threshold=1.001, random_state=seed)
        if new.value < 1.001:
            break
        H = np.vstack([H, 0.3 * new.H])
        V = np.vstack([V, -0.3 * new.Q / new.values[:, None]])
        k = len(H)
        start = np.concatenate([H.ravel(), V.ravel()])
        options = {"maxiter": 300, "maxcor": 20, "ftol": 1e-12}
        x = minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x
        H, V = x[: -k * m].reshape(k, d), x[-k * m :].reshape(k, m)
        used = (V**2).sum(1) > 1e-12
        H, V = H[used], V[used]
    return gamma


def random_ascents(G, n, seed):
    """The best |q|_2 from random starts, by the paper's step h <- M h / |M h| with a shift."""
    H = np.random.default_rng(seed).standard_normal((n, G.shape[1]))
    shift = np.sqrt((np.linalg.eigvalsh(G) ** 2).max(1).sum())
    before = np.zeros(n)
    for _ in range(1500):
        H /= np.linalg.norm(H, axis=1, keepdims=True)
        images = (H @ G.reshape(-1, G.shape[1]).T).reshape(n, *G.shape[:2])
        q = np.einsum("kci,ki->kc", images, H)
        values = np.linalg.norm(q, axis=1)
        if (values <= before * (1 + 1e-9)).all():
            break
        before = values
        H = np.einsum("kc,kci->ki", q / values[:, None], images) + 0.2 * shift * H
    return values.max()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_thorough_sees_what_the_plain_search_missed(seed):
    """The hardest case: a model that was trained against the plain search."""
    gamma = trained(*overlapping_classes(seed=seed))
    truth = random_ascents(gamma.dense(), 300, 77)
    plain = select_basis(gamma, "l1/l2", random_state=0)
    assert truth > 1.001 * plain.value
    for seed in range(10):
        result = select_basis(gamma, "l1/l2", thorough=True, tol=1e-3, random_state=seed)
        assert result.value >= (1 - 5e-4) * truth
        assert result.bound >= truth


@pytest.mark.parametrize("penalty", GROUP)
@pytest.mark.parametrize("n_components", [4, 12])
def test_thorough_on_digits(penalty, n_components):
    X, y = load_digits(return_X_y=True)
    X, y = np.hstack([np.ones((250, 1)), X[:250] / 16]), y[:250]
    design = Design(X)
    for state in conditional_gradient(
        design, y, penalty=penalty, alpha=1.0, n_components=n_components, random_state=0
    ):
        if state.n_iter == n_components:
            break
    loss = get_loss("multiclass_logistic")
    D = loss.value_grad(encode_targets("label", y, 10), design.outputs(state.H, state.V))[1]
    gamma = design.gamma(D)
    G = gamma.dense()
    if penalty == "l1/linf":
        truth = select_basis(gamma, penalty, "exact").value
    else:
        truth = random_ascents(G, 100, 5)
    for seed in range(2):
        result = select_basis(gamma, penalty, thorough=True, tol=1e-3, random_state=seed)
        assert (1 - 5e-4) * truth <= result.value
        if penalty == "l1/linf":
            assert result.bound >= truth * (1 - 1e-10)


def test_thorough_enumerates_the_signs_of_eleven_outputs():
    X, y = overlapping_classes()
    gamma = Design(X).gamma(np.eye(11)[y] - 1 / 11)
    result = select_basis(gamma, "l1/linf", thorough=True, random_state=0)
    truth = select_basis(gamma, "l1/linf", "exact").value
    assert result.value == pytest.approx(truth, rel=1e-12)
    assert result.bound == pytest.approx(truth, rel=1e-12)


@pytest.mark.parametrize("kind", ["dense rows", "pairs"])
def test_thorough_over_rows(kind):
    gamma = GAMMAS[kind]
    truth = select_basis(gamma, "l1/linf", "exact").value
    for n_vectors in (1, 5):
        result = select_basis(
            gamma, "l1/linf", n_vectors=n_vectors, thorough=True, tol=1e-3, random_state=0
        )
        assert (1 - 1e-3) * truth <= result.value <= truth * (1 + 1e-9)
        assert truth * (1 - 1e-9) <= result.bound <= truth * (1 + 2e-3)


# ---- claims of optimality ------------------------------------------------------------------------

# Problems of bench/certificates.py, which has its own brute force. 5de635d called the first eight
# optimal at tol 1e-3 with a true violation of 1.0044 to 1.089 alpha. A later search was unsure of
# the others: it did not flip signs from random starts, and lost count of ascents that end slowly.
FALSE_CLAIMS = [
    ("CSR rows", "l1/linf", 23),
    ("CSR rows", "l1/linf", 35),
    ("CSR rows", "l1/l2", 58),
    ("dense rows", "l1/l2", 42),
    ("dense rows", "l1/linf", 24),
    ("explicit", "l1/linf", 8),
    ("shards", "l1/linf", 0),
    ("shards", "l1/linf", 7),
    ("explicit", "l1/linf", 0),
    ("explicit", "l1/linf", 3),
    ("dense rows", "l1/l2", 4),
    ("shards", "l1/linf", 205),  # 256 restarts missed 1.007 alpha
    ("CSR rows", "l1/l2", 3044),  # 128 restarts missed 1.005 alpha
]


@pytest.mark.parametrize(("path", "penalty", "seed"), FALSE_CLAIMS)
def test_optimal_is_true(path, penalty, seed, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "bench"))
    certificates = pytest.importorskip("certificates")
    monkeypatch.setattr(certificates, "SECONDS", 20.0)  # machines may be slow or busy
    result = certificates.run({"path": path, "penalty": penalty, "seed": seed})
    assert result["alpha_max"] > 1 - 1e-5
    for fit in result["fits"]:
        assert fit["stop"] == "optimal"
        assert fit["found"] - 1e-6 <= fit["true"] * (1 + 1e-3)
        assert fit["true"] <= 1 + 2 * fit["tol"]


@pytest.mark.parametrize("penalty", GROUP)
@pytest.mark.parametrize(("d", "m"), [(3, 24), (5, 20)])
def test_easy_fits_are_confirmed(penalty, d, m):
    for seed in range(4):
        rng = np.random.default_rng(seed)
        design, y = Design(rng.standard_normal((60, d))), rng.permutation(np.arange(60) % m)
        alpha = 0.4 * alpha_max(design, y, penalty=penalty)
        for tol in (1e-3, 0.1):
            options = {"penalty": penalty, "alpha": alpha, "tol": tol, "n_components": 200}
            *_, state = conditional_gradient(design, y, random_state=0, **options)
            assert state.stop == "optimal"


def test_ritz_vectors_are_the_best_of_krylov_spaces():
    G, rng = symmetric(5, 3, 40), np.random.default_rng(0)
    W, Y = rng.standard_normal((4, 3)), ascent.unit(rng.standard_normal((4, 40)))
    for w, y, found in zip(W, Y, ascent.ritz_vectors(G, W, Y), strict=True):
        M = np.tensordot(w, G, 1)
        B = np.linalg.qr(np.column_stack([np.linalg.matrix_power(M, j) @ y for j in range(5)]))[0]
        best = np.linalg.eigvalsh(B.T @ M @ B)[-1]
        assert found @ M @ found == pytest.approx(best, rel=1e-9)


def test_flips_keep_their_promise_and_climb():
    """Each start has the value of the flipped slopes that no vector of its plane exceeds."""
    G, penalty = many_maxima(m=7, d=6), get_penalty("l1/linf")
    Y = np.linalg.qr(np.random.default_rng(0).standard_normal((6, 6)))[0]
    points = ascent.climb(G, ascent.points_at(G, Y, penalty), penalty, 1e-9, 50)
    signs = penalty.slopes(points.Q)
    W, starts = ascent.flips(G, signs, points.Y, points.Q)
    for row in range(len(Y)):
        y, promises = points.Y[row], []
        for c in range(7):
            w = np.where(np.arange(7) == c, -1, 1) * signs[row]
            B = np.linalg.qr(np.column_stack([y, G[c] @ y]))[0]
            promises.append(np.linalg.eigvalsh(B.T @ np.tensordot(w, G, 1) @ B)[-1])
        for flipped in range(ascent.FLIPS * row, ascent.FLIPS * (row + 1)):
            w, h = W[flipped], starts[flipped]
            assert np.count_nonzero(w != signs[row]) == 1
            assert w @ forms(G, h[None])[0] == pytest.approx(
                sorted(promises)[-1 - flipped % ascent.FLIPS], rel=1e-6
            )
    lifted = ascent.flip(G, points, penalty, 1e-9, 50)
    assert (lifted.values >= points.values).all()
    assert lifted.values.mean() > 1.02 * points.values.mean()
    assert lifted.values.max() <= by_hand(G) * (1 + 1e-9)


def test_ends_that_are_alone():
    Y = ascent.unit(np.array([[1, 0, 0], [1, 0.1, 0], [0, 1, 0], [0, 0, -1.0]]))
    ends, others = ascent.Points(Y, Y, np.ones(4)), ascent.Points(*np.ones((3, 0, 3)))
    np.testing.assert_array_equal(ascent.is_alone(ends, others), [False, False, True, True])
    axis = np.array([[0, 0.1, 1.0]])
    others = ascent.Points(ascent.unit(axis), axis, np.array([7.0]))
    np.testing.assert_array_equal(ascent.is_alone(ends, others), [False, False, True, False])
    replaced = ascent.replace_alike(ends, others)
    np.testing.assert_array_equal(replaced.values, [1, 1, 1, 7])


def many_maxima(m=24, d=10):
    """Random matrices of no structure, with many maxima for l1/linf."""
    rng = np.random.default_rng(0)
    Z = rng.standard_normal((m, 40, d))
    return np.einsum("cni,cnj,cn->cij", Z, Z, rng.choice([-1.0, 1.0], (m, 40)))


def test_a_search_that_is_confirmed_has_the_best_of_many_ascents():
    G, rng, best = many_maxima(), np.random.default_rng(1), 0.0
    for _ in range(500):
        signs = rng.choice([-1.0, 1.0], len(G))
        for _ in range(60):
            values, vectors = np.linalg.eigh(np.tensordot(signs, G, 1))
            h = vectors[:, np.abs(values).argmax()]
            q = np.einsum("cij,i,j->c", G, h, h)
            signs, before = np.where(q >= 0, 1.0, -1.0), signs
            if np.array_equal(signs, before):
                break
        best = max(best, np.abs(q).sum())
    result = select_basis(ExplicitGamma(G), "l1/linf", thorough=True, tol=1e-3, random_state=0)
    assert result.value >= (1 - 1e-9) * best


def test_a_thorough_search_tries_all_signs_only_if_nothing_else_is_above(monkeypatch):
    gamma = ExplicitGamma(symmetric(0, 5, 9))
    best = select_basis(gamma, "l1/linf", "exact").value
    asked = []
    whole = ascent.best_of_vertices
    monkeypatch.setattr(ascent, "best_of_vertices", lambda *given: asked.append(1) or whole(*given))
    for threshold, n_asked, confirmed in [(0.9 * best, 0, False), (1.01 * best, 1, True)]:
        result = select_basis(gamma, "l1/linf", thorough=True, threshold=threshold, random_state=0)
        assert (len(asked), result.confirmed) == (n_asked, confirmed)
        assert 0.9 * best < result.value <= best * (1 + 1e-9)
        assert result.bound >= best * (1 - 1e-9)
    assert result.bound == result.value


def test_large_matrices_are_searched_without_their_eigenvectors(monkeypatch):
    """200 rows of a million features, 2,000 entries: they took most of the time of a fit."""
    G = symmetric(0, 2, 520)
    wanted = ascent.ascend(G, np.eye(4, 520), L1L2(), 1e-3).values[0]
    assert wanted > np.abs(np.linalg.eigvalsh(G)).max()
    monkeypatch.setattr(ascent, "dsyevr", None)
    result = select_basis(ExplicitGamma(G), thorough=True, random_state=0)
    assert wanted <= 1.001 * result.value
    assert result.value <= result.bound


def test_matrices_that_do_not_fit_are_not_formed(monkeypatch):
    """The search over the rows goes on, but its result is not confirmed, nor is the model."""
    X, D = multiclass(0, n=60, d=12, m=4)
    gamma = DenseGamma(as_matrix(X), D)
    assert select_basis(gamma, thorough=True, random_state=0).confirmed
    monkeypatch.setattr(methods, "DENSE_BYTES", 8 * 12**2 * 4 - 1)
    limited = select_basis(gamma, thorough=True, random_state=0)
    assert not limited.confirmed
    assert select_basis(gamma, "l1", thorough=True, random_state=0).confirmed
    y = D.argmin(axis=1)
    sparse = Design(sp.csr_array(np.where(np.abs(X) > 1.5, X, 0)))
    stops = {}
    for penalty in ("l1", "l1/l2"):
        alpha = 0.5 * alpha_max(sparse, y, penalty=penalty)
        *_, state = conditional_gradient(sparse, y, penalty=penalty, alpha=alpha, random_state=0)
        stops[penalty] = state.stop
    assert stops == {"l1": "optimal", "l1/l2": "unconfirmed"}


# ---- bad input -----------------------------------------------------------------------------------


def test_bad_input():
    gamma = ExplicitGamma(symmetric(0, 3, 4))
    with pytest.raises(ValueError, match=r"unknown method 'best'; known: 'refine', 'l1',"):
        select_basis(gamma, "l1/l2", "best")
    with pytest.raises(ValueError, match=r"unknown penalty 'l2'; known: l1, l1/l2, l1/linf"):
        select_basis(gamma, "l2")
    with pytest.raises(TypeError, match=r"Design\.gamma"):
        select_basis(symmetric(0, 3, 4), "l1")
    for tol in (0, -1.0, np.nan):
        with pytest.raises(ValueError, match="tol"):
            select_basis(gamma, tol=tol)
    for max_iter in (-1, 2.5, True):
        with pytest.raises((TypeError, ValueError), match="max_iter"):
            select_basis(gamma, max_iter=max_iter)
    for n_vectors in (0, 2.5, True, "many"):
        with pytest.raises((TypeError, ValueError), match="n_vectors"):
            select_basis(gamma, n_vectors=n_vectors)
    for name in ("threshold", "sign_budget"):
        for bad in (-1.0, np.nan):
            with pytest.raises(ValueError, match=name):
                select_basis(gamma, **{name: bad})
    with pytest.raises(ValueError, match=r"start must have shape \(3, 4\)"):
        select_basis(gamma, start=np.ones((4, 3)))
    with pytest.raises(TypeError, match="random_state"):
        select_basis(gamma, random_state="seed")


@pytest.mark.parametrize("penalty", ["l1/l2", Plain(L1L2())])
def test_exact_refuses_other_penalties(penalty):
    with pytest.raises(ValueError, match="'exact' is for the penalties l1 and l1/linf"):
        select_basis(ExplicitGamma(symmetric(0, 3, 4)), penalty, "exact")


def test_exact_refuses_many_outputs():
    gamma = ExplicitGamma(symmetric(0, 21, 2))
    with pytest.raises(ValueError, match="at most 20 outputs, got 21; use 'refine'"):
        select_basis(gamma, "l1/linf", "exact")
    assert select_basis(gamma, "l1", "exact").value > 0


def test_best_data_needs_rows():
    gamma = ExplicitGamma(symmetric(0, 3, 4))
    with pytest.raises(ValueError, match="pass data=design"):
        select_basis(gamma, "l1", "best_data")
    with pytest.raises(ValueError, match="data must have 4 features, got 3"):
        select_basis(gamma, "l1", "best_data", data=np.ones((5, 3)))


def test_examples_and_lazy_name():
    assert fastpoly.select_basis is oracle.select_basis
    for module in (ascent, oracle):
        assert doctest.testmod(module).failed == 0


# ---- own oracles ---------------------------------------------------------------------------------


def along_axes(request):
    return np.eye(request.gamma.d)


def test_methods_are_oracles_known_by_name():
    assert set(oracle.METHODS) == {"refine", "l1", "random", "random+refine", "best_data", "exact"}
    X, D = multiclass(0, n=40, d=6, m=3)
    gamma = Design(X).gamma(D)
    own = {"l1": methods.eigenvectors, "best_data": methods.best_data, "exact": methods.exact}
    for name, function in own.items():
        by_name = select_basis(gamma, "l1/linf", name, data=X, random_state=0)
        by_function = select_basis(gamma, "l1/linf", function, data=X, random_state=0)
        np.testing.assert_array_equal(by_name.H, by_function.H)


@pytest.mark.parametrize("penalty", PENALTIES)
def test_own_oracle_is_sorted_and_judged_by_the_forms(penalty):
    G = symmetric(3, 4, 5)
    found = select_basis(ExplicitGamma(G), penalty, along_axes, n_vectors=5)
    values = DUAL[penalty](np.einsum("cii->ic", G))
    np.testing.assert_allclose(found.values, np.sort(values)[::-1], rtol=1e-12)
    assert found.bound == np.inf
    assert not found.confirmed


def test_own_oracle_sees_the_request():
    X, D = multiclass(0, n=40, d=6, m=3)
    design, seen = Design(X), []

    def look(request):
        seen.append(request)
        return select_basis(request.gamma, request.penalty, random_state=request.rng)

    gamma = design.gamma(D)
    found = select_basis(gamma, "l1/l2", look, tol=1e-2, data=design, random_state=0)
    assert isinstance(seen[0], Request)
    assert seen[0].gamma is gamma
    assert seen[0].tol == 1e-2
    assert seen[0].data is design
    assert found.value == pytest.approx(select_basis(gamma, "l1/l2", random_state=0).value)
    assert found.bound == np.inf  # what it says about its vectors is not believed
    assert not found.confirmed


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (np.ones(6) / np.sqrt(6), ValueError, r"'broken'.*2 dimension.*\(6,\)"),
        (np.eye(5), ValueError, r"'broken'.*6"),
        (np.empty((0, 6)), ValueError, r"'broken'.*at least one row"),
        (np.full((1, 6), np.nan), ValueError, r"'broken'.*NaN"),
        (np.full((1, 6), np.inf), ValueError, r"'broken'.*infinity"),
        (2 * np.eye(6), ValueError, r"'broken'.*norm 1; row 0 has norm 2"),
        (np.diag([1, 1, 1, 1, 1, 0.0]), ValueError, r"'broken'.*norm 1; row 5 has norm 0"),
        (None, (TypeError, ValueError), r"'broken'"),
        ("nonsense", (TypeError, ValueError), r"'broken'"),
    ],
)
@pytest.mark.parametrize("through", ["select_basis", "conditional_gradient", "estimator"])
def test_bad_answers_of_an_oracle_are_named(answer, error, message, through):
    def broken(request):
        return answer

    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((30, 6)), np.arange(30) % 3
    calls = {
        "select_basis": lambda: select_basis(Design(X).gamma(np.ones((30, 3))), "l1/l2", broken),
        "conditional_gradient": lambda: list(
            fastpoly.conditional_gradient(Design(X), y, alpha=1.0, selection=broken)
        ),
        "estimator": lambda: fastpoly.PolynomialNetworkClassifier(alpha=1.0, selection=broken).fit(
            X, y
        ),
    }
    with pytest.raises(error, match=message):
        calls[through]()


@pytest.mark.parametrize(("bad", "error"), [("nonsense", ValueError), (3, TypeError)])
def test_what_is_no_oracle(bad, error):
    with pytest.raises(error, match="method.*refine.*callable"):
        select_basis(Design(np.eye(3)).gamma(np.ones((3, 1))), method=bad)
    with pytest.raises(error, match="selection.*refine.*callable"):
        fastpoly.conditional_gradient(Design(np.eye(3)), [0, 1, 2], alpha=1.0, selection=bad)


def test_a_poor_oracle_is_not_called_optimal():
    """It finds only axes; the package's own search says that there is more."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 5))
    y = X[:, 0] * X[:, 1]
    design = Design(X)
    alpha = 0.05 * fastpoly.alpha_max(design, y, loss="squared")
    options = {"loss": "squared", "alpha": alpha, "random_state": 0}
    *_, best = fastpoly.conditional_gradient(design, y, **options)
    *_, axes = fastpoly.conditional_gradient(
        design, y, selection=along_axes, refit="output", **options
    )
    assert best.stop == "optimal"
    true = np.linalg.norm(design.gamma(design.outputs(axes.H, axes.V) - y[:, None]).dense()[0], 2)
    assert axes.stop != "optimal" or true <= 1.001 * alpha
