"""largest_pairs against a sort of all pairs."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from fastpoly import interactions
from fastpoly.interactions import largest_pairs, strongest_features

check = settings(max_examples=150, deadline=None, derandomize=True)


def sorted_pairs(F, weights, count, fields=None):
    i, j = np.triu_indices(F.shape[1], 1)
    p = (F.T @ (weights[:, None] * F))[i, j]
    if fields is not None:
        p[(fields[i] == fields[j]) & (fields[i] >= 0)] = 0
    best = np.lexsort((j, i, -abs(p)))
    best = best[p[best] != 0][:count]
    return i[best], j[best], p[best]


@pytest.fixture(params=[1, 7, 40, 2**20])
def block_entries(request, monkeypatch):
    """Blocks of one row up to blocks of all rows."""
    monkeypatch.setattr(interactions, "BLOCK_DOUBLES", request.param)


in_any_blocks = pytest.mark.usefixtures("block_entries")


integers = st.integers(-3, 3).map(float)  # exact arithmetic: ties and zeros are real


@st.composite
def problems(draw):
    k, d = draw(st.integers(0, 4)), draw(st.integers(0, 12))
    F = draw(arrays(float, (k, d), elements=integers))
    fields = draw(st.none() | arrays(np.int64, d, elements=st.integers(-1, 3)))
    return F, draw(arrays(float, k, elements=integers)), draw(st.integers(1, 80)), fields


@in_any_blocks
def test_equals_a_sort_of_all_pairs_ties_included():
    @check
    @given(problems())
    def run(problem):
        for found, want in zip(largest_pairs(*problem), sorted_pairs(*problem), strict=True):
            assert_array_equal(found, want)

    run()


@in_any_blocks
@pytest.mark.parametrize("spread", [0, 1, 4])
@pytest.mark.parametrize("count", [1, 10, 100])
def test_real_factors_whose_norms_are_equal_or_spread(spread, count):
    rng = np.random.default_rng(spread)
    F = rng.standard_normal((6, 60))
    F *= np.exp(spread * rng.standard_normal(60)) / np.linalg.norm(F, axis=0)
    weights = rng.standard_normal(6)
    i, j, products = largest_pairs(F, weights, count)
    want_i, want_j, want = sorted_pairs(F, weights, count)
    assert_allclose(products, want, rtol=1e-10)
    assert_array_equal(i, want_i)
    assert_array_equal(j, want_j)


@in_any_blocks
def test_copies_of_features_tie_exactly():
    rng = np.random.default_rng(1)
    F = np.tile(rng.standard_normal((5, 3)), 4)  # 12 features, 3 distinct
    i, j, products = largest_pairs(F, rng.standard_normal(5), 66)
    assert len(np.unique(products)) == 6  # 3 pairs of distinct features, 3 of copies
    assert (np.lexsort((j, i, -abs(products))) == np.arange(66)).all()


def test_squares_that_underflow_do_not_hide_a_pair():
    i, j, products = largest_pairs(np.array([[1e-170, 1e150, 0.0]]), np.ones(1), 5)
    assert (i.tolist(), j.tolist()) == ([0], [1])
    assert_allclose(products, [1e-20], rtol=1e-14)


def test_products_that_overflow_are_refused():
    with pytest.raises(ValueError, match="overflow"):
        largest_pairs(np.array([[1e200, 1e200]]), np.ones(1), 1)


def test_many_features_take_little_memory():
    d = 50_000
    rng = np.random.default_rng(2)
    F = rng.standard_normal((8, d))
    F[:, [17, 40_000]] *= 10
    F[:, 40_000] = F[:, 17] * 0.9
    tracemalloc.start()
    try:
        i, j, products = largest_pairs(F, np.ones(8), 5)
        assert tracemalloc.get_traced_memory()[1] < 2e8  # a d x d matrix has 2e10 bytes
    finally:
        tracemalloc.stop()
    assert (i[0], j[0]) == (17, 40_000)
    assert_allclose(products[0], 0.9 * F[:, 17] @ F[:, 17], rtol=1e-13)
    assert_allclose(products, [F[:, a] @ F[:, b] for a, b in zip(i, j, strict=True)], rtol=1e-12)


@pytest.mark.parametrize("count", [3, 4, 7])
def test_the_strongest_features_are_not_only_those_of_the_strongest_pairs(count):
    """All largest pairs are among the first count - 1 features; the last one comes after them."""
    F = np.full((1, 12), 0.1)
    F[0, : count - 1], F[0, 10] = 10.0, 1.0
    found = strongest_features(F, np.ones(1), count, squares=False)
    np.testing.assert_array_equal(found, [*range(count - 1), 10])
