"""Every registered penalty: identities, certificates of optimality, unrelated solvers."""

import doctest
import pickle

import numpy as np
import pytest
import reference_penalties as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from reference_penalties import Plain, assert_is_prox

from fastpoly.kernels import penalties
from fastpoly.kernels.penalties import (
    L1,
    PENALTIES,
    Penalty,
    complete_penalty,
    get_penalty,
)

WIDTHS = (1, 2, 5, 7, 64, 70)

each_penalty = pytest.mark.parametrize(
    "penalty", [get_penalty(name) for name in PENALTIES], ids=str
)
check = settings(max_examples=40, deadline=None, derandomize=True)

# Repeated values make ties, the kinks of every prox and projection.
entries = st.one_of(
    st.sampled_from([-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0]),
    st.floats(-10, 10, allow_subnormal=False),
)
strengths = st.one_of(st.sampled_from([0.25, 0.5, 1.0, 2.0]), st.floats(1e-3, 30))


@st.composite
def problems(draw):
    """V (k, m), row weights (k,), row metric (k,), a positive scalar, a random generator."""
    k, m = draw(st.integers(0, 6)), draw(st.sampled_from([1, 2, 5, 7]))
    V = draw(arrays(float, (k, m), elements=entries))
    weights, metric = draw(arrays(float, (2, k), elements=strengths))
    return V, weights, metric, draw(strengths), np.random.default_rng(draw(st.integers(0, 99)))


def example(k, m, seed=0):
    rng = np.random.default_rng(seed)
    V = rng.standard_normal((k, m)) * rng.choice([0, 0.1, 1, 3], size=(k, 1))
    return np.where(rng.random((k, m)) < 0.2, np.round(V), V), rng.uniform(0.3, 3, (2, k)), rng


def assert_is_projection(penalty, V, tau, weights, metric, P):
    """V - P, in the metric, is normal to the ball at P, which lies on it."""
    assert penalty.value(P, weights) <= tau * (1 + 1e-12)
    if penalty.value(V, weights) <= tau:
        assert_array_equal(P, V)
        return
    normal = metric[:, None] * (V - P)
    scale = np.sum(np.abs(metric[:, None] * V) * np.abs(V)) + np.sum(np.abs(normal))
    support = tau * penalty.dual_norm(normal, weights)
    assert_allclose(np.sum(normal * P), support, rtol=1e-11, atol=1e-12 * scale)
    assert_allclose(penalty.value(P, weights), tau, rtol=1e-12)


# ---- norms --------------------------------------------------------------------------------------


@each_penalty
@check
@given(problem=problems())
def test_value_is_the_weighted_sum_of_row_norms(penalty, problem):
    V, weights, *_ = problem
    norms = [reference.NORMS[penalty.name](v) for v in V]
    assert_allclose(penalty.row_norms(V), norms, rtol=1e-14)
    assert_allclose(penalty.value(V), np.sum(norms), rtol=1e-13)
    assert_allclose(penalty.value(V, weights), weights @ norms, rtol=1e-13)


@each_penalty
@check
@given(problem=problems())
def test_dual_norm_bounds_the_ball_and_polar_attains_it(penalty, problem):
    G, weights, _, _, rng = problem
    dual = penalty.dual_norm(G, weights)
    for _ in range(20):
        U = rng.standard_normal(G.shape) * (rng.random(G.shape) < 0.5)
        assert np.sum(G * U) <= dual * penalty.value(U, weights) + 1e-10
    attained = [0.0]
    for g, weight in zip(G, weights, strict=True):
        v = penalty.polar(g)
        assert penalty.value([v]) <= 1 + 1e-14
        assert_allclose(g @ v, penalty.dual_norm([g]), rtol=1e-13)
        attained.append(g @ v / weight)
    assert_allclose(max(attained), dual, rtol=1e-13)
    assert_allclose(penalty.dual_norm(G), penalty.dual_norm(G, np.ones(len(G))))


# ---- prox ---------------------------------------------------------------------------------------


@each_penalty
@check
@given(problem=problems())
def test_prox_is_optimal_and_obeys_moreau(penalty, problem):
    V, weights, _, t, _ = problem
    U = penalty.prox(V, t, weights)
    assert_is_prox(penalty, V, t * weights, U)
    dual_parts = [
        reference.DUAL_BALLS[penalty.name](v, t * w) for v, w in zip(V, weights, strict=True)
    ]
    assert_allclose(U + np.reshape(dual_parts, V.shape), V, atol=1e-13)
    assert_allclose(penalty.prox(V, t), penalty.prox(V, t, np.ones(len(V))), atol=0)


@each_penalty
@check
@given(problem=problems())
def test_prox_three_point_inequality_and_nonexpansiveness(penalty, problem):
    V, weights, _, t, rng = problem
    U = penalty.prox(V, t, weights)
    omega = t * penalty.value(U, weights)
    for scale in (1e-3, 0.1, 1, 10):
        Z = U + scale * rng.standard_normal(V.shape)
        slack = t * penalty.value(Z, weights) - omega - np.sum((V - U) * (Z - U))
        assert slack >= -1e-10 * (1 + omega)
        change = penalty.prox(Z, t, weights) - U
        assert np.sum(change**2) <= np.sum((Z - V) * change) + 1e-10  # firmly nonexpansive


@each_penalty
@pytest.mark.parametrize("m", WIDTHS)
@pytest.mark.parametrize("k", [0, 1, 15])
def test_prox_and_projection_agree_with_the_twins(penalty, k, m):
    V, (weights, metric), _ = example(k, m, seed=k + m)
    t = 0.2 * penalty.dual_norm(V)
    assert_allclose(
        penalty.prox(V, t, weights), reference.prox(penalty.name, V, t * weights), atol=1e-13
    )
    for share in (0.01, 0.3, 0.9, 1.1):
        tau = share * penalty.value(V, weights) or 1.0
        P = penalty.project(V, tau, weights, metric)
        twin = reference.project(penalty.name, V, tau, weights, metric)
        assert_allclose(P, twin, atol=1e-11)
        assert_is_projection(penalty, V, tau, weights, metric, P)


@each_penalty
@pytest.mark.parametrize("m", WIDTHS)
def test_prox_at_zero_and_at_huge_strength(penalty, m):
    V, _, _ = example(20, m)
    assert_array_equal(penalty.prox(V, 0), V)
    for t in (1e3, 1e300):
        U = penalty.prox(V, t)
        assert_array_equal(U, 0)
        assert not np.signbit(U).any()
    edge = penalty.dual_norm(V)  # the smallest strength that removes every row
    assert_array_equal(penalty.prox(V, edge * (1 + 1e-14)), 0)
    assert penalty.value(penalty.prox(V, edge * (1 - 1e-9))) > 0


# ---- projection ---------------------------------------------------------------------------------


@each_penalty
@check
@given(problem=problems())
def test_projection_is_optimal(penalty, problem):
    V, weights, metric, tau, rng = problem
    P = penalty.project(V, tau, weights, metric)
    assert_is_projection(penalty, V, tau, weights, metric, P)
    assert_allclose(penalty.project(P, tau, weights, metric), P, rtol=1e-12, atol=1e-13)
    for _ in range(10):
        U = rng.standard_normal(V.shape) * rng.choice([0, 1, 5], size=(len(V), 1))
        U *= tau * rng.random() / max(penalty.value(U, weights), 1e-9)
        assert np.sum(metric[:, None] * (V - P) * (U - P)) <= 1e-9
    ones = np.ones(len(V))
    P = penalty.project(V, tau)
    assert_is_projection(penalty, V, tau, ones, ones, P)
    assert_allclose(penalty.project(V, tau, metric=7 * ones), P, rtol=1e-12, atol=1e-13)


@each_penalty
@pytest.mark.parametrize("seed", range(6))
def test_projection_against_a_generic_solver(penalty, seed):
    rng = np.random.default_rng(seed)
    V, weights, metric = rng.standard_normal((3, 2)), *rng.uniform(0.5, 2, (2, 3))
    if seed % 2:
        V[1] = 0.5  # ties inside a row
    tau = rng.uniform(0.2, 0.8) * penalty.value(V, weights)
    generic = reference.project_generic(penalty.name, V, tau, weights, metric)
    assert_allclose(penalty.project(V, tau, weights, metric), generic, atol=1e-6)


def test_projection_by_hand():
    V = np.array([[3.0, 1.0], [0.5, -2.0]])
    assert_allclose(get_penalty("l1").project(V, 2.0), [[1.5, 0], [0, -0.5]])
    # l1/linf with theta = 1: row 1 drops its peak by 1, row 2 too.
    assert_allclose(get_penalty("l1/linf").project(V, 3.0), [[2, 1], [0.5, -1]])
    V = np.array([[3.0, 4.0], [0.0, 2.0]])
    assert_allclose(get_penalty("l1/l2").project(V, 3.0), [[1.8, 2.4], [0, 0]])
    # Weight 2 on the second row: thresholds theta and 2 theta, 5 - theta + 2 (2 - 2 theta) = 7.
    P = get_penalty("l1/l2").project(V, 7.0, weights=[1, 2])
    assert_allclose(P, [[3 * (1 - 0.08), 4 * (1 - 0.08)], [0, 1.2]])
    # A metric that keeps the first row in place.
    P = get_penalty("l1/l2").project(V, 6.0, metric=[1e12, 1])
    assert_allclose(P, [[3, 4], [0, 1]], atol=1e-9)


@each_penalty
def test_projection_of_equal_rows_and_equal_entries(penalty):
    V = np.ones((10, 5))
    V[1::2] *= -1
    P = penalty.project(V, 0.5 * penalty.value(V))
    assert_allclose(P, V / 2)


@each_penalty
@pytest.mark.parametrize("scale", [1e-290, 1e-200, 1e-150, 1e150])
def test_scale_does_not_matter(penalty, scale):
    """Positive homogeneity, far outside the range where squares are representable."""
    V, (weights, metric), _ = example(6, 5, seed=3)
    assert_allclose(penalty.value(V * scale, weights), penalty.value(V, weights) * scale)
    assert_allclose(penalty.dual_norm(V * scale), penalty.dual_norm(V) * scale)
    assert_allclose(penalty.polar(V[0] * scale), penalty.polar(V[0]), atol=1e-15)
    close = {"rtol": 1e-12, "atol": 1e-13 * scale}
    assert_allclose(penalty.prox(V * scale, scale), scale * penalty.prox(V, 1), **close)
    P = penalty.project(V * scale, 2 * scale, weights, metric)
    assert_allclose(P, scale * penalty.project(V, 2, weights, metric), **close)


@each_penalty
@pytest.mark.parametrize("ratio", [1e8, 1e16, 1e30, 1e150])
def test_projection_on_a_tiny_ball(penalty, ratio):
    """Where rounding makes theta absorb tau, the point is still on the ball."""
    V, (weights, metric), _ = example(12, 5, seed=5)
    V *= ratio
    P = penalty.project(V, 1.0, weights, metric)
    assert_allclose(penalty.value(P, weights), 1, rtol=1e-12)
    normal = metric[:, None] * (V - P)
    assert_allclose(np.sum(normal * P), penalty.dual_norm(normal, weights), rtol=1e-7)


@each_penalty
def test_extreme_weights_stay_finite(penalty):
    V = 1e150 * np.ones((2, 3))
    for weights in ([1e200, 1], [1e-200, 1], [1e-300, 1e300]):
        P = penalty.project(V, 1.0, weights)
        assert np.isfinite(P).all()
        assert penalty.value(P, weights) <= 1 + 1e-12
        assert np.isfinite(penalty.prox(V, 1e200, weights)).all()
    assert np.isfinite(penalty.project(V, 1.0, metric=[1e-300, 1e300])).all()


# ---- selection criterion ------------------------------------------------------------------------


@each_penalty
@pytest.mark.parametrize("m", WIDTHS)
def test_criterion_and_its_gradient(penalty, m):
    rng = np.random.default_rng(m)
    for scale in (0.3, 1, 5):
        q = scale * rng.standard_normal(m)
        value, weights = penalty.criterion(q)
        assert_allclose(value, reference.criterion(penalty.name, q), rtol=1e-13)
        eps = 1e-6
        for c in range(min(m, 10)):
            e = eps * (np.arange(m) == c)
            slope = (penalty.criterion(q + e)[0] - penalty.criterion(q - e)[0]) / (2 * eps)
            assert_allclose(weights[c], slope, atol=1e-6 * (1 + scale))


def test_criterion_at_the_kinks():
    value, weights = get_penalty("l1/linf").criterion([1.0, -1.0, 3.0, 0.0])
    assert value == 0.5 + 0.5 + 2.5
    assert_array_equal(weights, [1, -1, 1, 0])
    value, weights = get_penalty("l1").criterion([2.0, -3.0, 3.0])
    assert value == 3
    assert_array_equal(weights, [0, -1, 0])


@each_penalty
def test_zero_row(penalty):
    value, weights = penalty.criterion(np.zeros(4))
    assert value == 0
    assert_array_equal(weights, 0)
    assert_array_equal(penalty.polar(np.zeros(4)), 0)
    assert penalty.dual_norm(np.zeros((2, 4))) == 0
    assert penalty.criterion([])[0] == 0
    assert penalty.polar([]).shape == (0,)


# ---- equivalences -------------------------------------------------------------------------------


@check
@given(problem=problems())
def test_one_output_makes_all_penalties_equal(problem):
    V, weights, metric, t, _ = problem
    V = V[:, :1]
    first, *others = (get_penalty(name) for name in PENALTIES)
    for other in others:
        close = {"rtol": 1e-12, "atol": 1e-13}
        assert_allclose(other.value(V, weights), first.value(V, weights), **close)
        assert_allclose(other.dual_norm(V, weights), first.dual_norm(V, weights), **close)
        assert_allclose(other.prox(V, t, weights), first.prox(V, t, weights), **close)
        assert_allclose(
            other.project(V, t, weights, metric), first.project(V, t, weights, metric), **close
        )


@each_penalty
@check
@given(problem=problems())
def test_rows_may_be_permuted_and_signs_flipped(penalty, problem):
    V, weights, metric, t, rng = problem
    order, columns = rng.permutation(len(V)), rng.permutation(V.shape[1])
    signs = rng.choice([-1, 1], V.shape)
    moved = (signs * V)[order][:, columns]
    close = {"rtol": 1e-11, "atol": 1e-12}
    U = signs * penalty.prox(V, t, weights)
    assert_allclose(penalty.prox(moved, t, weights[order]), U[order][:, columns], **close)
    P = signs * penalty.project(V, t, weights, metric)
    again = penalty.project(moved, t, weights[order], metric[order])
    assert_allclose(again, P[order][:, columns], **close)


@each_penalty
def test_out_and_read_only_inputs(penalty):
    V, (weights, metric), _ = example(6, 5)
    copy = V.copy()
    for a in (V, weights, metric):
        a.flags.writeable = False
    for verb, args in ((penalty.prox, (0.4, weights)), (penalty.project, (1.0, weights, metric))):
        fresh = verb(V, *args)
        out = np.empty_like(V)
        assert verb(V, *args, out=out) is out
        assert_array_equal(out, fresh)
        in_place = V.copy()
        assert verb(in_place, *args, out=in_place) is in_place
        assert_array_equal(in_place, fresh)
        assert_allclose(verb(np.asfortranarray(V), *args), fresh)
        assert_allclose(verb(V.tolist(), *args), fresh)
        with pytest.raises(ValueError, match="out must be"):
            verb(V, *args, out=V)
    penalty.value(V, weights), penalty.dual_norm(V, weights), penalty.row_norms(V)
    penalty.criterion(V[0]), penalty.polar(V[0])
    assert_array_equal(V, copy)


# ---- registry and arguments ---------------------------------------------------------------------


@each_penalty
def test_penalties_are_values(penalty):
    assert get_penalty(penalty) is penalty
    assert PENALTIES[penalty.name] is type(penalty)
    assert pickle.loads(pickle.dumps(penalty)) == penalty == type(penalty)()
    assert hash(penalty) == hash(type(penalty)())
    assert sum(penalty == get_penalty(name) for name in PENALTIES) == 1


def test_get_penalty():
    plain = Plain(L1())
    assert get_penalty(plain).given is plain
    with pytest.raises(ValueError, match=r"'l2'; known: l1, l1/l2, l1/linf"):
        get_penalty("l2")
    del plain.criterion
    with pytest.raises(TypeError, match="lacks criterion"):
        get_penalty(plain)
    with pytest.raises(TypeError, match="got the class L1"):
        get_penalty(L1)
    with pytest.raises(TypeError, match="lacks"):
        get_penalty(None)
    with pytest.raises(TypeError, match="abstract"):
        Penalty()


@each_penalty
def test_verbs_that_a_penalty_lacks(penalty):
    """They follow from the required ones, row by row."""
    V = np.random.default_rng(0).standard_normal((5, 3))
    plain = complete_penalty(Plain(penalty))
    assert complete_penalty(penalty) is penalty
    assert complete_penalty(plain) is plain
    for each in (plain, pickle.loads(pickle.dumps(plain))):
        for verb in ("row_norms", "dual_norms", "slopes"):
            assert_allclose(getattr(each, verb)(V), getattr(penalty, verb)(V))
        assert each.row_norms(V[:0]).shape == each.dual_norms(V[:0]).shape == (0,)
        assert (np.array(each.dual_ratios(3)) >= np.array(penalty.dual_ratios(3)) - 1e-12).all()
        assert not each.compiled
        assert not each.separable
        assert each.smooth_form is each.n_vertices(3) is None
        with pytest.raises(TypeError, match='`polar`; define it, or use refit="output"'):
            each.polar(V[0])
        with pytest.raises(NotImplementedError, match="no list of vertices"):
            each.vertices(3)


def test_a_subclass_without_rows_shows_nan():
    class Bare(Penalty):
        pass

    V = np.ones((2, 3))
    value, weights = Bare().criterion(V[0])
    for result in (Bare().value(V), Bare().dual_norm(V), value, weights, Bare().polar(V[0])):
        assert np.isnan(result).all()
    assert np.isnan(Bare().prox(V, 1.0)).all()
    with pytest.raises(NotImplementedError, match="Bare needs row_norm and row_shrunk"):
        Bare().project(V, 1.0)


@each_penalty
def test_bad_input(penalty):
    V = np.ones((3, 2))
    verbs = {
        "value": lambda V, w=None: penalty.value(V, w),
        "dual_norm": lambda V, w=None: penalty.dual_norm(V, w),
        "prox": lambda V, w=None: penalty.prox(V, 1.0, w),
        "project": lambda V, w=None: penalty.project(V, 1.0, w),
        "metric": lambda V, w=None: penalty.project(V, 1.0, metric=w),
    }
    for verb in verbs.values():
        for bad in (V.astype(object), V.astype(complex), V.astype(str)):
            with pytest.raises(TypeError, match="real numbers"):
                verb(bad)
        for bad in (V[0], V[None], V * np.nan, V * np.inf):
            with pytest.raises(ValueError, match=r"must have 2 dim|NaN or infinity"):
                verb(bad)
        for weights in ([1, 2], [1, 0, 1], [1, -1, 1], [1, np.nan, 1], [1, np.inf, 1], V):
            with pytest.raises(ValueError, match=r"(weights|metric) (must|contains)"):
                verb(V, weights)
        with pytest.raises(TypeError, match="real numbers"):
            verb(V, ["a", "b", "c"])
    for bad, error in ((-1.0, ValueError), (np.nan, ValueError), ("1", TypeError)):
        with pytest.raises(error, match="t must be"):
            penalty.prox(V, bad)
        with pytest.raises(error, match="tau must be"):
            penalty.project(V, bad)
    with pytest.raises(ValueError, match="tau must be"):
        penalty.project(V, 0)
    for verb in (penalty.criterion, penalty.polar):
        with pytest.raises(ValueError, match="q "):
            verb(V)
        with pytest.raises(ValueError, match="q contains"):
            verb([np.nan])


def test_examples_in_the_docstrings_run():
    result = doctest.testmod(penalties)
    assert result.attempted > 10
    assert result.failed == 0
