"""Kernels on rows as shards store them: codes of fields, levels of one byte, scaled rows."""

import numpy as np
import pytest
from subprocesses import run_python

from fastpoly import Design
from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.losses import get_loss
from fastpoly.kernels.matrix import ScaledRows, StoredRows, as_matrix


def test_stored_rows_are_checked():
    good = np.array([[0, 3], [1, 2]], dtype=np.int32)
    assert as_matrix(StoredRows((2, 4), good)).pairs
    for wrong in (good[:, ::-1], good + 1, good - 1, good.astype(np.int64), good[:1], good[0]):
        with pytest.raises(ValueError, match="ind"):
            as_matrix(StoredRows((2, 4), wrong))
    with pytest.raises(ValueError, match="data"):
        StoredRows((2, 4), good, np.ones((2, 3)))
    with pytest.raises(ValueError, match="NaN"):
        as_matrix(StoredRows((2, 4), good, np.full((2, 2), np.nan)))


REPLACED = """
import numpy as np
from fastpoly import Design
from fastpoly.kernels.matrix import ScaledRows, StoredRows

def scaled():
    return ScaledRows(np.ones((3, 2)), np.zeros(2), np.ones(2))

def stored(width=2, n=1000):
    codes = np.tile(np.arange(width, dtype=np.int32), (n, 1))
    return StoredRows((n, 5), codes, np.ones((n, width)))

refused = []
for make, name, value in (
    (scaled, "center", None),
    (scaled, "factor", np.ones(1)),
    (scaled, "array", np.ones((3, 3_000_000))),
    (scaled, "array", np.ones(6)),
    (stored, "data", np.ones((1000, 2), np.int8)),
    (stored, "data", np.ones((1000, 2))[::-1]),
    (stored, "data", [[1.0, 1.0]] * 1000),
    (stored, "indices", None),
    (stored, "indices", np.ones((1000, 2))),
    (stored, "indptr", np.arange(1001.0)),
    (stored, "shape", (10_000_000, 5)),
    (stored, "shape", (-1, 5)),
):
    rows = make()
    setattr(rows, name, value)
    try:
        Design(rows).activations(np.ones((1, rows.shape[1] if make is stored else 2)))
        refused.append(name + " was taken")
    except (TypeError, ValueError):
        pass
print(refused)
"""


def test_arrays_that_were_replaced_are_checked_again():
    assert run_python(REPLACED).endswith("[]")


@pytest.mark.parametrize("augment", [False, True])
@pytest.mark.parametrize("width", [1, 2, 3])
@pytest.mark.parametrize("activation", ["squared", "anova"])
def test_kernels_do_the_same_on_stored_rows(activation, width, augment):
    rng = np.random.default_rng(0)
    n, d = 200, 5 * width
    indices = np.sort(rng.integers(5, size=(n, width)) + 5 * np.arange(width), axis=1)
    indices = indices.astype(np.int32)
    X = np.zeros((n, d))
    np.put_along_axis(X, indices.astype(int), 1.0, axis=1)
    fit_lower = "augment" if augment else None
    stored = Design(
        as_matrix(StoredRows((n, d), indices), augment), activation, fit_lower=fit_lower
    )
    plain = Design(X, activation, fit_lower=fit_lower)
    H, D = rng.standard_normal((3, d + augment)), rng.standard_normal((n, 4))
    np.testing.assert_allclose(stored.activations(H), plain.activations(H), atol=1e-12)
    B = rng.standard_normal((d + augment, 4))
    a, b = stored.gamma(D), plain.gamma(D)
    np.testing.assert_allclose(a.matvecs(B), b.matvecs(B), atol=1e-10)
    np.testing.assert_allclose(a.forms(H[0]), b.forms(H[0]), atol=1e-10)
    np.testing.assert_allclose(a.combine(B[0], H[0]), b.combine(B[0], H[0]), atol=1e-10)
    np.testing.assert_allclose(
        stored.features(H).basis_grad_outputs(H[:, :2], D[:, :2]),
        plain.features(H).basis_grad_outputs(H[:, :2], D[:, :2]),
        atol=1e-10,
    )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("activation", ["squared", "anova"])
@pytest.mark.parametrize("loss", ["multiclass_logistic", "binary_logistic"])
@pytest.mark.parametrize("kind", ["codes", "values", "scaled"])
def test_objectives_of_levels_are_those_of_their_targets(kind, loss, activation, linear, weighted):
    """Two shards that share their memory, one of them with a single row."""
    rng = np.random.default_rng(0)
    n, d, k, m, spare = 300, 10, 3, 4, []
    indices = np.sort(rng.integers(5, size=(n, 2)) + np.array([0, 5]), axis=0).astype(np.int32)
    values = np.ones((n, 2)) if kind == "codes" else rng.standard_normal((n, 2))
    X = np.zeros((n, d))
    np.put_along_axis(X, indices.astype(int), values, axis=1)
    center, factor = rng.standard_normal(d), rng.uniform(0.5, 2, d)
    levels = rng.integers(m, size=n).astype(np.uint8)
    by_level = np.arange(4.0)[:, None]
    if loss == "binary_logistic":
        by_level = np.where(np.arange(4)[:, None] <= np.arange(m), 1.0, -1.0)
    w = rng.uniform(0, 2, n) if weighted else None
    how = {"activation": activation, "linear": linear}
    model = [rng.standard_normal(shape) for shape in ((k, d), (k, m), (m,), (d, m))]
    model = model if linear else model[:2]
    for rows in (slice(0, n), slice(n - 1, n)):
        if kind == "scaled":
            stored = ScaledRows(X[rows], center, factor)
            plain = (X[rows] - center) * factor
        else:
            data = None if kind == "codes" else values[rows]
            stored, plain = StoredRows((len(X[rows]), d), indices[rows], data), X[rows]
        own = None if w is None else w[rows]
        here = JointObjective(
            as_matrix(stored), get_loss(loss), by_level, m, own, levels=levels[rows], spare=spare,
            **how,
        )  # fmt: skip
        there = JointObjective(
            as_matrix(plain), get_loss(loss), by_level[levels[rows]], m, own, **how
        )
        D, E = np.empty((len(plain), m)), np.empty((len(plain), m))
        found, want = here.value_grad(*model, D=D), there.value_grad(*model, D=E)
        np.testing.assert_allclose(D, E, atol=1e-12)
        assert found[0] == pytest.approx(want[0], rel=1e-12)
        for a, b in zip(found[1:], want[1:], strict=True):
            if b is None:
                assert a is None
            else:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
        for a, b in zip(here.curvature(*model), there.curvature(*model), strict=True):
            if b is None:
                assert a is None
            else:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    assert spare


def test_levels_beyond_the_targets_are_refused():
    X, Y = as_matrix(np.ones((3, 2))), np.zeros((2, 1))
    levels = np.array([0, 1, 2], dtype=np.uint8)
    for wrong in (levels, levels[:2], levels.astype(np.int64), np.zeros(6, np.uint8)[::2]):
        with pytest.raises(ValueError, match="level"):
            JointObjective(X, get_loss("multiclass_logistic"), Y, 2, levels=wrong)
