"""RMSE and nDCG: against scikit-learn where definitions meet, by hand where they do not."""

import doctest
import itertools
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import ndcg_score, root_mean_squared_error

from fastpoly import metrics
from fastpoly.metrics import GAINS, TIES, WITHOUT_GAIN, ndcg, rmse

check = settings(max_examples=60, deadline=None, derandomize=True)


@st.composite
def rankings(draw, max_rows=30, max_groups=5):
    """y, score, groups: few distinct values, so that ties and empty gains are common."""
    n = draw(st.integers(1, max_rows))
    rows = lambda values: np.array(draw(st.lists(values, min_size=n, max_size=n)))  # noqa: E731
    y = rows(st.sampled_from([0.0, 0.0, 1.0, 2.0, 3.5, 5.0]))
    score = rows(st.sampled_from([-1.0, -0.0, 0.0, 0.25, 0.5, 3.0]))
    return y, score, rows(st.integers(0, max_groups - 1))


def gains(y, gain):
    return 2.0**y - 1 if gain == "exp" else y


def dcg_of_order(ordered_gains, k):
    return sum(g / np.log2(rank + 2) for rank, g in enumerate(ordered_gains[:k]))


@pytest.mark.parametrize("gain", GAINS)
@check
@given(ranking=rankings(), k=st.sampled_from([None, 1, 2, 5, 50]))
def test_average_ties_and_zero_for_empty_groups_is_what_scikit_learn_computes(gain, ranking, k):
    y, score, groups = ranking
    names, values = ndcg(y, score, groups, k, gain=gain, without_gain="zero", per_group=True)
    assert_array_equal(names, np.unique(groups))
    for name, value in zip(names, values, strict=True):
        rows = groups == name
        if rows.sum() > 1:  # scikit-learn refuses single items
            want = ndcg_score([gains(y[rows], gain)], [score[rows]], k=k)
            assert_allclose(value, want, atol=1e-13)
    mean = ndcg(y, score, groups, k, gain=gain, without_gain="zero")
    assert_allclose(mean, values.mean(), atol=1e-14)


@pytest.mark.parametrize("gain", GAINS)
@check
@given(ranking=rankings(max_rows=5, max_groups=1), k=st.sampled_from([None, 1, 2, 3]))
def test_average_ties_is_the_expectation_over_all_orders(gain, ranking, k):
    y, score, groups = ranking
    g = gains(y, gain)
    orders = [list(order) for order in itertools.permutations(range(len(y)))]
    sorted_orders = [order for order in orders if (np.diff(score[order]) <= 0).all()]
    expected = np.mean([dcg_of_order(g[order], k) for order in sorted_orders])
    ideal = max(dcg_of_order(g[order], k) for order in orders)
    want = expected / ideal if ideal > 0 else 1.0
    assert_allclose(ndcg(y, score, groups, k, gain=gain, without_gain="one"), want, atol=1e-13)


def test_first_keeps_the_order_of_tied_rows():
    y, score, groups = [1.0, 3.0, 2.0], [0.0, 0.0, 1.0], [7, 7, 7]
    logs = np.log2([2, 3, 4])
    want = np.sum([2, 1, 3] / logs) / np.sum([3, 2, 1] / logs)
    assert_allclose(ndcg(y, score, groups, gain="linear", ties="first"), want, rtol=1e-14)
    want = np.sum([3, 1, 7] / logs) / np.sum([7, 3, 1] / logs)
    assert_allclose(ndcg(y, score, groups, gain="exp", ties="first"), want, rtol=1e-14)
    # The tied rows the other way round: now the larger relevance comes first.
    want = np.sum([2, 3, 1] / logs) / np.sum([3, 2, 1] / logs)
    swapped = ndcg([3.0, 1.0, 2.0], score, groups, gain="linear", ties="first")
    assert_allclose(swapped, want, rtol=1e-14)


@pytest.mark.parametrize("ties", TIES)
def test_single_items_and_groups_without_gain(ties):
    #         single   empty     reversed    single, empty
    groups = ["a",     "b", "b", "c", "c",   "d"]  # fmt: skip
    y = [4.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    score = [0.0, 1.0, 2.0, 9.0, 8.0, 5.0]
    wrong = 1 / np.log2(3)  # the only relevant item of "c" at rank 2
    nan = np.nan
    expected = {
        ("skip", False): [1, nan, wrong, nan],
        ("zero", False): [1, 0, wrong, 0],
        ("one", False): [1, 1, wrong, 1],
        ("skip", True): [nan, nan, wrong, nan],
        ("zero", True): [nan, 0, wrong, nan],
        ("one", True): [nan, 1, wrong, nan],
    }
    for without_gain in WITHOUT_GAIN:
        for skip_single in (False, True):
            how = {"ties": ties, "without_gain": without_gain, "skip_single": skip_single}
            want = expected[without_gain, skip_single]
            names, values = ndcg(y, score, groups, per_group=True, **how)
            assert_array_equal(names, ["a", "b", "c", "d"])
            assert_allclose(values, want, rtol=1e-14)
            assert_allclose(ndcg(y, score, groups, **how), np.nanmean(want), rtol=1e-14)


@check
@given(ranking=rankings(), seed=st.integers(0, 99), gain=st.sampled_from(GAINS))
def test_the_order_of_rows_and_the_names_of_groups_do_not_matter(ranking, seed, gain):
    y, score, groups = ranking
    how = {"k": 3, "gain": gain, "without_gain": "zero"}
    value = ndcg(y, score, groups, **how)
    order = np.random.default_rng(seed).permutation(len(y))
    names = np.array(["eve", "bob", "al", "dan", "cy"])
    assert_allclose(ndcg(y[order], score[order], names[groups][order], **how), value, atol=1e-14)
    # Only the order of scores counts, and it counts in one direction.
    assert_allclose(ndcg(y, np.exp(score) * 7, groups, **how), value, atol=1e-14)
    assert 0 <= value <= 1
    best = ndcg(y, y, groups, gain=gain, without_gain="one")
    assert best == pytest.approx(1, abs=1e-14)
    assert ndcg(y, -y, groups, gain=gain, without_gain="one") <= best + 1e-14


def test_a_large_ranking_takes_no_loop_over_groups():
    rng = np.random.default_rng(0)
    n = 250_000
    y, score = rng.integers(0, 6, n), rng.standard_normal(n).round(2)
    groups = rng.integers(0, 6000, n)
    seconds = []
    for _ in range(3):
        start = time.process_time()  # whatever else the machine does
        value = ndcg(y, score, groups, 10)
        seconds.append(time.process_time() - start)
    assert 0.3 < value < 0.9
    assert min(seconds) < 1  # 0.12 s on an idle core


def test_rmse():
    rng = np.random.default_rng(0)
    y, prediction = rng.standard_normal((2, 50, 3))
    want = root_mean_squared_error(y[:, 0], prediction[:, 0])
    assert_allclose(rmse(y[:, 0].tolist(), prediction[:, 0]), want, rtol=1e-14)
    assert_allclose(rmse(y, prediction), np.sqrt(((y - prediction) ** 2).sum() / 150), rtol=1e-14)
    assert type(rmse([1], [3])) is float
    for bad, message in (([], "y is empty"), ([1.0, np.nan], "y contains NaN")):
        with pytest.raises(ValueError, match=message):
            rmse(bad, bad)
    with pytest.raises(ValueError, match="prediction must have shape"):
        rmse([1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"score": [1.0]}, ValueError, "score must have shape"),
        ({"groups": [0, 0, 1]}, ValueError, "groups must have shape"),
        ({"groups": [[0], [0]]}, ValueError, "groups must have shape"),
        ({"groups": [0.0, np.nan]}, ValueError, "groups contains None, NaN or NaT"),
        ({"groups": ["a", np.nan]}, ValueError, "groups contains None, NaN or NaT"),
        ({"groups": ["a", None]}, ValueError, "groups contains None, NaN or NaT"),
        ({"groups": np.array([1, None])}, ValueError, "groups contains None, NaN or NaT"),
        ({"groups": np.array(["2020", "NaT"], "M8[D]")}, ValueError, "groups contains None"),
        ({"y": [1.0, np.nan]}, ValueError, "y contains NaN"),
        ({"score": [np.inf, 0.0]}, ValueError, "score contains NaN or infinity"),
        ({"y": [1.0, -1.0]}, ValueError, "y must be >= 0"),
        ({"y": [1.0, -1.0], "gain": "linear"}, ValueError, "y must be >= 0"),
        ({"y": [1.0, 1e4]}, ValueError, "overflows"),
        ({"y": [1e308, 1e308], "gain": "linear"}, ValueError, "overflows"),
        ({"y": [], "score": [], "groups": []}, ValueError, "y is empty"),
        ({"y": ["a", "b"]}, TypeError, "y must hold real numbers"),
        ({"k": 0}, ValueError, "k must be at least 1"),
        ({"k": True}, TypeError, "k must be an integer"),
        ({"k": 1.5}, TypeError, "integer"),
        ({"gain": "log"}, ValueError, "'exp', 'linear'"),
        ({"ties": "last"}, ValueError, "'average', 'first'"),
        ({"without_gain": None}, ValueError, "'skip', 'zero', 'one'"),
        ({"y": [0.0, 0.0]}, ValueError, "no group counts"),
        ({"skip_single": True, "groups": [0, 1]}, ValueError, "no group counts"),
    ],
)
def test_bad_input(change, error, message):
    good = {"y": [1.0, 2.0], "score": [0.5, 0.1], "groups": [0, 0]}
    assert 0 < ndcg(**good) < 1
    with pytest.raises(error, match=message):
        ndcg(**good | change)


def test_missing_group_of_a_frame():
    pandas = pytest.importorskip("pandas")
    for values in (["a", None], pandas.array([1, None], dtype="Int64")):
        with pytest.raises(ValueError, match="groups contains None, NaN or NaT"):
            ndcg([1.0, 2.0], [0.5, 0.1], pandas.Series(values))
    assert ndcg([1.0, 2.0], [0.5, 0.1], pandas.Series(["nan", "nan"])) < 1  # a word


def test_examples():
    results = doctest.testmod(metrics)
    assert results.attempted
    assert not results.failed
