"""X in every supported form, and what must be refused before a kernel reads it."""

import contextlib
import copy
import doctest
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import reference
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from subprocesses import run_python

from fastpoly.kernels import matrix
from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.features import make_features
from fastpoly.kernels.matrix import CsrMatrix, DenseMatrix, Matrix, as_matrix

FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")
check = settings(max_examples=60, deadline=None, derandomize=True)


def values_of(M):
    """X as a Matrix stores it, after a look at what a kernel reads there."""
    d = M.d - M.augment
    if M.sparse:
        data, indices, indptr = M.arrays
        assert (indices.dtype, indptr.dtype) == (np.int32, np.int64)
        for row in range(M.n):
            assert (np.diff(indices[indptr[row] : indptr[row + 1]]) > 0).all()
        X = np.zeros((M.n, d), data.dtype)
        X[np.repeat(np.arange(M.n), np.diff(indptr)), indices] = data
    else:
        X = M.array
        assert X.flags.carray or not X.flags.writeable
        assert X.flags.c_contiguous
        assert X.flags.aligned
    assert M.single == (X.dtype == np.float32)
    squares = reference.dense_of(X, M.augment) ** 2
    assert_array_equal(make_features(M, np.eye(M.d)).activations(), squares)
    return X


EXAMPLE = np.array([[0, 2, 0, -1], [0, 0, 0, 0], [3, 0, 0, 4], [0, 0, 0, 7.0]])


@pytest.mark.parametrize("container", ["array", "matrix"])
@pytest.mark.parametrize("form", FORMATS)
def test_sparse_formats(form, container):
    for dtype in (np.float32, np.float64, np.int8, np.int64, np.uint16, bool, np.longdouble):
        X = getattr(sp, f"{form}_{container}")(EXAMPLE.astype(dtype))
        M = as_matrix(X)
        assert isinstance(M, CsrMatrix)
        want = EXAMPLE.astype(dtype).astype(np.float32 if dtype == np.float32 else np.float64)
        assert_array_equal(values_of(M), want)
        assert values_of(M).dtype == want.dtype
        assert_array_equal(X.toarray(), EXAMPLE.astype(dtype))


def test_blocks():
    X = np.kron(EXAMPLE, np.arange(6).reshape(2, 3))
    assert_array_equal(values_of(as_matrix(sp.bsr_array(X, blocksize=(2, 3)))), X)


@st.composite
def messy_csr(draw):
    """Unsorted, duplicate, zero and missing entries, int32 or int64 indices, any length of rows."""
    n, d = draw(st.integers(0, 5)), draw(st.integers(1, 5))
    rows = [draw(st.lists(st.integers(0, d - 1), max_size=6)) for _ in range(n)]
    indices = np.array([j for row in rows for j in row], dtype=draw(st.sampled_from("ilLI")))
    indptr = np.cumsum([0, *map(len, rows)]).astype(draw(st.sampled_from("il")))
    values = st.sampled_from([0.0, 1.0, -1.0, 0.5, 3.0])
    data = np.array(draw(st.lists(values, min_size=len(indices), max_size=len(indices))))
    X = sp.csr_array((n, d))
    spare = draw(st.integers(0, 2))  # scipy lets the arrays be longer than indptr says
    X.data = np.append(data, np.full(spare, np.nan)).astype(draw(st.sampled_from("fd")))
    X.indices, X.indptr = np.append(indices, np.full(spare, 99, indices.dtype)), indptr
    return X


@check
@given(messy_csr())
def test_duplicates_add_up_before_they_are_squared(X):
    want = np.zeros(X.shape)
    for i in range(X.shape[0]):
        for p in range(X.indptr[i], X.indptr[i + 1]):
            want[i, X.indices[p]] += X.data[p]
    before = X.data.copy(), X.indices.copy(), X.indptr.copy()
    assert_array_equal(values_of(as_matrix(X)), want)
    assert_array_equal(values_of(as_matrix(X, True)), want)
    for a, b in zip(before, (X.data, X.indices, X.indptr), strict=True):
        assert_array_equal(a, b)  # the caller's arrays are not sorted in place


def test_duplicates_of_small_integers_do_not_overflow():
    at = ([0, 0], [1, 1])
    for dtype, want in ((np.int8, 200), (np.uint8, 400), (bool, 2)):
        data = np.array([want // 2] * 2).astype(dtype)
        for make in (sp.coo_array, sp.coo_matrix):
            X = make((data, at), shape=(1, 2))
            assert_array_equal(values_of(as_matrix(X)), [[0, want]])
        X = sp.csr_array((data, [1, 1], [0, 2]), shape=(1, 2))
        assert_array_equal(values_of(as_matrix(X)), [[0, want]])


def test_what_the_loops_may_assume():
    pairs = sp.csr_array((np.ones(4), [0, 1, 1, 2], [0, 2, 4]), shape=(2, 3))
    assert as_matrix(pairs).pairs
    assert as_matrix(pairs).ones
    assert not as_matrix(2 * pairs).ones
    assert as_matrix(2 * pairs).pairs
    assert not as_matrix(sp.csr_array(EXAMPLE)).pairs
    assert not as_matrix(sp.csr_array((0, 3))).pairs
    # Four entries, of which two are the same: no longer two per row once they are added up.
    twice = sp.csr_array((np.ones(4), [1, 1, 1, 2], [0, 2, 4]), shape=(2, 3))
    assert not as_matrix(twice).pairs
    assert not as_matrix(twice).ones


def test_values_are_shared_and_indices_are_not():
    dense, sparse = EXAMPLE.copy(), sp.csr_array(EXAMPLE)
    assert np.shares_memory(as_matrix(dense).array, dense)
    assert np.shares_memory(as_matrix(dense, True).array, dense)
    assert np.shares_memory(as_matrix(sparse).arrays[0], sparse.data)
    # If indices changed afterwards, the loops would read any memory.
    for array, original in zip(
        as_matrix(sparse).arrays[1:], (sparse.indices, sparse.indptr), strict=True
    ):
        assert not np.shares_memory(array, original)
        assert not array.flags.writeable


def unaligned(a):
    return np.frombuffer(b"x" + a.tobytes(), a.dtype, offset=1).reshape(a.shape)


def frozen(a):
    a = a.copy()
    a.flags.writeable = False
    return a


DENSE = {
    "list": lambda X: X.tolist(),
    "tuples": lambda X: tuple(map(tuple, X.tolist())),
    "Fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3],
    "reversed": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "read-only": frozen,
    "unaligned": unaligned,
    "big endian": lambda X: X.astype(X.dtype.newbyteorder(">")),
    "masked, nothing hidden": np.ma.masked_array,
    "pandas": pd.DataFrame,
    "polars": lambda X: pl.DataFrame(np.asarray(X), schema=list("abcd")),
}


@pytest.mark.parametrize("form", DENSE)
def test_dense_forms(form):
    for dtype in (np.float64, np.float32, np.float16, np.int64, np.int8, np.uint32, bool):
        X = EXAMPLE.astype(dtype)
        for augment in (False, True):
            M = as_matrix(DENSE[form](X), augment)
            assert isinstance(M, DenseMatrix)
            assert (M.n, M.d, M.augment) == (4, 4 + augment, augment)
            assert_array_equal(values_of(M), X.astype(np.float64))
    if form not in ("list", "tuples", "big endian"):
        assert as_matrix(DENSE[form](EXAMPLE.astype(np.float32))).single


def test_frames_of_several_types():
    columns = {"a": [1.5, 2.0], "b": [True, False], "c": [3, 4]}
    want = [[1.5, 1, 3], [2, 0, 4]]
    assert_array_equal(values_of(as_matrix(pd.DataFrame(columns))), want)
    assert_array_equal(values_of(as_matrix(pl.DataFrame(columns))), want)
    nullable = pd.DataFrame(columns).convert_dtypes()
    assert_array_equal(values_of(as_matrix(nullable)), want)
    one_hot = pd.get_dummies(pd.Series(["u", "v", "u"]), sparse=True)
    assert_array_equal(values_of(as_matrix(one_hot)), [[1, 0], [0, 1], [1, 0]])
    for bad in (
        pd.DataFrame({"a": [1.0, 2.0], "b": ["1", "2"]}),
        pl.DataFrame({"a": [1.0, 2.0], "b": ["1", "2"]}),
        pd.DataFrame({"a": pd.to_datetime(["2020-01-01"])}),
        pd.DataFrame({"a": pd.Categorical(["x"])}),
    ):
        with pytest.raises(TypeError, match="X must hold real numbers"):
            as_matrix(bad)
    for bad in (
        pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}),
        pd.DataFrame({"a": [1.0, np.nan], "b": [True, False]}),
        pl.DataFrame({"a": [1, None]}),
    ):
        with pytest.raises(ValueError, match="X contains NaN"):
            as_matrix(bad)
    for series in (pd.Series([1.0]), pl.Series([1.0])):
        with pytest.raises(ValueError, match="X must be a 2-D"):
            as_matrix(series)


def test_shapes_at_the_edge():
    for make in (np.asarray, sp.csr_array):
        for n, d in ((0, 3), (1, 1), (5, 1)):
            M = as_matrix(make(np.ones((n, d))))
            assert (M.n, M.d) == (n, d)
            assert_array_equal(values_of(M), np.ones((n, d)))
        M = as_matrix(make(np.ones((4, 0))), True)  # a constant, and nothing else
        assert_array_equal(make_features(M, [[3.0]]).activations(), [[9]] * 4)
        with pytest.raises(ValueError, match="X must have at least one column"):
            as_matrix(make(np.ones((4, 0))))


def test_a_matrix_stays_as_it_is():
    M = as_matrix(EXAMPLE)
    assert as_matrix(M) is M
    with pytest.raises(ValueError, match="augment"):
        as_matrix(M, True)


@pytest.mark.parametrize("make", [np.asarray, *(getattr(sp, f"{f}_array") for f in FORMATS)])
def test_missing_and_infinite_values(make):
    for bad in (np.nan, np.inf, -np.inf):
        for dtype in (np.float64, np.float32):
            X = EXAMPLE.astype(dtype)
            X[2, 0] = bad
            with pytest.raises(ValueError, match="X contains NaN or infinity"):
                as_matrix(make(X))


def test_values_that_overflow():
    huge = np.full((1, 1), np.finfo(np.longdouble).max)
    for X in (huge, sp.csr_array(huge), sp.coo_array(huge)):
        with pytest.raises(ValueError, match="X contains NaN or infinity"):
            as_matrix(X)
    twice = ([1e308, 1e308], [0, 0], [0, 2])
    with pytest.raises(ValueError, match="X contains NaN or infinity"):
        as_matrix(sp.csr_array(twice, shape=(1, 1)))


@pytest.mark.parametrize(
    ("X", "error", "text"),
    [
        (EXAMPLE.astype(complex), TypeError, "real numbers, got dtype complex"),
        (EXAMPLE.astype(object), TypeError, "real numbers, got dtype object"),
        (EXAMPLE.astype(str), TypeError, "real numbers"),
        (EXAMPLE.astype("S8"), TypeError, "real numbers"),
        (EXAMPLE.astype("M8[s]"), TypeError, "real numbers"),
        (sp.csr_array(EXAMPLE.astype(complex)), TypeError, "real numbers"),
        (sp.csc_array(EXAMPLE.astype(complex)), TypeError, "real numbers"),
        (sp.dok_array(EXAMPLE.astype(complex)), TypeError, "real numbers"),
        (None, TypeError, "real numbers"),
        ("X", TypeError, "real numbers"),
        ([["a"]], TypeError, "real numbers"),
        ([[1.0, 2.0], [3.0]], ValueError, "rectangular"),
        (np.ma.masked_equal(EXAMPLE, 0), ValueError, "masked"),
        (1.0, ValueError, "2-D"),
        (np.ones(3), ValueError, r"reshape\(-1, 1\)"),
        (np.ones((2, 2, 2)), ValueError, "2-D"),
        (sp.coo_array(np.ones(3)), ValueError, "2-D"),
        (sp.coo_array((2**31, 3)), ValueError, r"2\*\*31"),
        (sp.coo_array((3, 2**31)), ValueError, r"2\*\*31"),
        (sp.csr_array((3, 2**31)), ValueError, r"2\*\*31"),
        (sp.csc_array((2**31, 3)), ValueError, r"2\*\*31"),
    ],
)
def test_bad_values_and_shapes(X, error, text):
    with pytest.raises(error, match=f"X .*{text}"):
        as_matrix(X)
    with pytest.raises(error, match=f"X .*{text}"):
        as_matrix(X, True)


def forge(form, **arrays):
    """A matrix of EXAMPLE's pattern whose arrays were replaced without scipy's checks."""
    X = getattr(sp, f"{form}_array")(
        np.kron(EXAMPLE, np.ones((2, 2))) if form == "bsr" else EXAMPLE
    )
    if form == "bsr":
        X = X.tobsr(blocksize=(2, 2))
    for name, change in arrays.items():
        if name in ("row", "col"):  # scipy's own setters would cast
            name, change = "coords", on_coordinate(name, change)
        setattr(X, name, change(copy.copy(getattr(X, name))))
    return X


def on_coordinate(name, change):
    return lambda rc: (change(rc[0]), rc[1]) if name == "row" else (rc[0], change(rc[1]))


def put(at, value):
    def change(a):
        a = a.astype(np.int64)
        a[at] = value
        return a

    return change


def wrapping(indptr):
    """Never decreasing, if differences are taken in 64 bits, but far out of range."""
    return np.array([0, 2**63 - 1, -(2**63), -1, 0])


def wild(a):
    return np.append(a, a)


COMPRESSED = {
    "negative index": {"indices": put(0, -1)},
    "index out of range": {"indices": put(0, 4)},
    "huge index": {"indices": put(1, 2**40)},
    "index that wraps to 0 in 32 bits": {"indices": put(1, 2**32)},
    "unsigned index": {"indices": lambda a: np.array([2**64 - 1] * len(a), np.uint64)},
    "index of floats": {"indices": lambda a: a + 0.5},
    "index in two dimensions": {"indices": lambda a: np.tile(a, (9, 1))},
    "too few indices": {"indices": lambda a: a[:-1]},
    "too few values": {"data": lambda a: a[:-1]},
    "no values": {"data": lambda a: a[:0]},
    "values in another dimension": {"data": lambda a: np.tile(a[None], (9,) + (1,) * a.ndim)},
    "values as objects": {"data": lambda a: a.astype(object)},
    "complex values": {"data": lambda a: a * 1j},
    "indptr beyond the values": {"indptr": put(-1, 99)},
    "indptr far beyond the values": {"indptr": put(-1, 2**40)},
    "indptr not from 0": {"indptr": put(0, 1)},
    "negative indptr": {"indptr": put(0, -5)},
    "decreasing indptr": {"indptr": put(1, 4)},
    "indptr that dips below 0": {"indptr": put(2, -2)},
    "indptr that wraps": {"indptr": wrapping},
    "short indptr": {"indptr": lambda a: a[:-1]},
    "long indptr": {"indptr": lambda a: np.append(a, a[-1])},
    "empty indptr": {"indptr": lambda a: a[:0]},
    "indptr of floats": {"indptr": lambda a: a.astype(float)},
}
FORGED = {
    **{f"{form}: {name}": (form, arrays) for form in ("csr", "csc", "bsr")
       for name, arrays in COMPRESSED.items()},
    "bsr: flat values": ("bsr", {"data": np.ravel}),
    "bsr: blocks that do not tile": ("bsr", {"data": lambda a: np.ones((len(a), 3, 2))}),
    "bsr: blocks of nothing": ("bsr", {"data": lambda a: np.ones((len(a), 0, 2))}),
    "coo: negative row": ("coo", {"row": put(0, -1)}),
    "coo: row out of range": ("coo", {"row": put(0, 4)}),
    "coo: negative column": ("coo", {"col": put(0, -1)}),
    "coo: column out of range": ("coo", {"col": put(0, 2**40)}),
    "coo: too few rows": ("coo", {"row": lambda a: a[:-1]}),
    "coo: too many columns": ("coo", {"col": wild}),
    "coo: rows of floats": ("coo", {"row": lambda a: a + 0.5}),
    "coo: too few values": ("coo", {"data": lambda a: a[:-1]}),
    "dia: too many offsets": ("dia", {"offsets": wild}),
    "dia: too few offsets": ("dia", {"offsets": lambda a: a[:-1]}),
    "dia: offsets of floats": ("dia", {"offsets": lambda a: a.astype(float)}),
    "dia: flat values": ("dia", {"data": np.ravel}),
    "lil: too few rows": ("lil", {"rows": lambda a: a[:-1]}),
    "lil: too many rows": ("lil", {"rows": wild}),
    "lil: too few lists": ("lil", {"data": lambda a: a[:-1]}),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_forged_index_arrays(name):
    form, arrays = FORGED[name]
    X = forge(form, **arrays)
    with pytest.raises((ValueError, TypeError), match=r"^X\b"):
        as_matrix(X)


def test_forged_lists():
    for where, what in (
        ("data", [1.0] * 100_000),
        ("rows", [1] * 9),
        ("rows", [4]),
        ("rows", [-1]),
    ):
        X = sp.lil_array(EXAMPLE)
        getattr(X, where)[3] = what
        with pytest.raises(ValueError, match=r"^X"):
            as_matrix(X)


def test_forged_arrays_of_single_values_would_pass_if_they_were_valid():
    """Replacing arrays is not an error in itself: valid ones work."""
    for form in ("csr", "csc", "bsr"):
        X = forge(form, indices=put(0, 2), indptr=np.copy, data=np.copy)
        assert_array_equal(values_of(as_matrix(X)), X.toarray())
    X = forge("coo", row=put(0, 3))
    assert_array_equal(values_of(as_matrix(X)), X.toarray())


def test_a_matrix_is_made_once_and_checked():
    other = np.ones((100, 100))
    for kind, X in ((DenseMatrix, EXAMPLE), (CsrMatrix, sp.csr_array(EXAMPLE))):
        with pytest.raises(TypeError):
            kind.__new__(kind)
        M = kind(X)
        with contextlib.suppress(TypeError):
            M.__init__(other)
        assert (M.n, M.d) == (4, 4)
        for change in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError):
                change(M)
        with pytest.raises(AttributeError):
            M.n = 100
    for dense in (EXAMPLE, None, "X"):
        with pytest.raises(TypeError, match=r"^X must be a scipy sparse"):
            CsrMatrix(dense)
    with pytest.raises(ValueError, match="one feature"):
        explicit_gamma(Matrix(), np.empty((0, 1)))


def test_nothing_forged_crashes():
    """All of them again in a separate process, which must not crash."""
    code = """
import sys
sys.path.insert(0, {tests!r})
import numpy as np, test_matrix
from fastpoly.kernels.explicit import explicit_gamma
from fastpoly.kernels.features import make_features
from fastpoly.kernels.gamma import CsrGamma
refused = 0
for form, arrays in test_matrix.FORGED.values():
    try:
        M = test_matrix.as_matrix(test_matrix.forge(form, **arrays))
        CsrGamma(M, np.ones((M.n, 1))).forms(np.ones(M.d))
    except (ValueError, TypeError):
        refused += 1
np.savez({out!r}, refused=refused)
"""
    assert run_python(code, arrays=True)["refused"] == len(FORGED)


def test_doctests():
    assert doctest.testmod(matrix).failed == 0
