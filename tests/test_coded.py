"""Codes with tables against the plain matrix X = P B, against NumPy, and against differences."""

import numpy as np
import pytest
import reference
import reference_refit
from numpy.testing import assert_allclose
from reference import table_matrix
from scipy.sparse import csr_array

from fastpoly.algorithm import Options, train
from fastpoly.kernels.losses import LOSSES, get_loss
from fastpoly.kernels.matrix import StoredRows
from fastpoly.objective import Objective
from fastpoly.problem import Problem
from fastpoly.rows import CodedRows, Design, ShardDesign, Tables, as_rows, write_shards
from fastpoly.state import Model

SIZES = (4, 6, 5)  # levels of the fields
OFFSETS = np.cumsum([0, *SIZES])
EVERY_LOSS = pytest.mark.parametrize("loss", sorted(LOSSES))
EVERY_LOWER = pytest.mark.parametrize("fit_lower", [None, "augment", "explicit"])
ACTIVATIONS = pytest.mark.parametrize("activation", ["anova", "squared"])


def some_codes(rng, n=60):
    own = [rng.integers(size, size=n) for size in SIZES]
    return (np.column_stack(own) + OFFSETS[:-1]).astype(np.int32)


def some_tables(rng, widths):
    """Tables of that many columns; None stands for a diagonal."""
    return Tables(
        [
            rng.normal(size=size) if width is None else rng.normal(size=(size, width))
            for size, width in zip(SIZES, widths, strict=True)
        ]
    )


def case(loss="multiclass_logistic", widths=(1, 1, 1), activation="anova", fit_lower="explicit",
         seed=0, n=60, m=3):  # fmt: skip
    """Coded rows, X = P B, P, targets, weights, tables, and a generator."""
    rng = np.random.default_rng(seed)
    codes, tables = some_codes(rng, n), some_tables(rng, widths)
    y = reference_refit.targets(loss, rng, rng.normal(size=(n, m)))
    y = y[:, 0] if get_loss(loss).target == "label" else y
    w = rng.random(n)
    given = {"loss": loss, "sample_weight": w, "n_outputs": m}
    P = StoredRows((n, OFFSETS[-1]), codes)
    rows = as_rows(Design(P, activation, fit_lower=fit_lower), y, **given)
    P = np.zeros((n, OFFSETS[-1]))
    P[np.arange(n)[:, None], codes] = 1
    X = csr_array(P @ table_matrix(tables))
    plain = as_rows(Design(X, activation, fit_lower=fit_lower), y, **given)
    return CodedRows(rows, tables), plain, P, rng


def some_model(rows, rng, k=4):
    d, m, explicit = rows.n_features, rows.m, rows.explicit
    H, V = rng.normal(size=(k, d)), 0.3 * rng.normal(size=(k, m))
    intercept = rng.normal(size=m) if explicit else np.zeros(m)
    return Model(H, V, intercept, rng.normal(size=(d, m)) if explicit else None)


def assert_close(a, b):
    if a is None or b is None:
        assert a is b
        return
    assert_allclose(a, b, rtol=1e-10, atol=1e-10 * np.abs(b).max(initial=1.0))


def packed(rows, model):
    return np.concatenate([a.ravel() for a in (model if rows.explicit else model[:2])])


@EVERY_LOSS
@EVERY_LOWER
@ACTIVATIONS
def test_equals_the_plain_matrix_where_a_field_has_one_column(
    loss, fit_lower, activation, monkeypatch
):
    coded, plain, _, rng = case(loss, activation=activation, fit_lower=fit_lower)
    model = some_model(coded, rng)
    x, m = packed(coded, model), coded.m
    g, expected = np.empty_like(x), np.empty_like(x)
    assert_close(coded.value_grad(x, 4, g), plain.value_grad(x, 4, expected))
    assert_close(g, expected)
    assert_close(coded.value(model), plain.value(model))
    for a, b in zip(coded.value_layers(model), plain.value_layers(model), strict=True):
        assert_close(a, b)
    assert_close(coded.squared_norms(model.H), plain.squared_norms(model.H))
    H, V = rng.normal(size=(2, coded.n_features)), rng.normal(size=(2, m))
    (a, bound), (b, expected) = coded.ray(model, H, V), plain.ray(model, H, V)
    assert_close(bound, expected)
    assert_close(a(0.3), b(0.3))
    if activation == "anova":
        own, theirs = coded.curvature(model, np.ones(4)), plain.curvature(model, np.ones(4))
        for a, b in zip(own, theirs, strict=True):
            assert_close(a, b)
    found, expected = coded.gradient(model), plain.gradient(model)
    for a, b in zip(found[:4], expected[:4], strict=True):
        assert_close(a, b)
    assert_close(found.conjugate(0.5), expected.conjugate(0.5))
    whole, want = found.gamma(), expected.gamma()
    monkeypatch.setattr("fastpoly.rows.coded.BLOCK_DOUBLES", 0)  # as for many rows
    B, w, S = (rng.normal(size=(k, m)) for k in (coded.n_features, 1, 2))
    for gamma in (whole, found.gamma()):
        for verb in (
            lambda G: G.matvecs(B), lambda G: G.forms(B[:, 0]), lambda G: G.dense(),
            lambda G: G.combine(w[0], B[:, 1]), lambda G: G.combined(S.T).dense(),
        ):  # fmt: skip
            assert_close(verb(gamma), verb(want))


@EVERY_LOWER
def test_many_columns_leave_out_pairs_within_a_field(fit_lower):
    """o = sum_r v_r sum_{f<g} z_rf z_rg, with z_rf = h_r'B_f[code]; and the gradients of it."""
    coded, _, P, rng = case("squared", (3, None, 2), fit_lower=fit_lower)
    model, B = some_model(coded, rng), table_matrix(coded.tables)
    block = coded.codes.block
    ones = np.ones((len(P), 1))
    codes = np.hstack([ones, P]) if fit_lower == "augment" else P

    def loss(x):
        k, d, m = 4, coded.n_features, coded.m
        H, V, rest = np.split(x, [k * d, k * (d + m)])
        O = reference.fast_activations(codes, H.reshape(k, d) @ B.T, "anova") @ V.reshape(k, m)
        if coded.explicit:
            O = O + rest[:m] + codes @ B @ rest[m:].reshape(d, m)
        return 0.5 * (block.w[:, None] * (O - block.objective.targets) ** 2).sum()

    x = packed(coded, model)
    g = np.empty_like(x)
    assert_close(coded.value_grad(x, 4, g), loss(x))
    steps = 1e-5 * np.eye(len(x))
    assert_allclose(g, [(loss(x + s) - loss(x - s)) / 2e-5 for s in steps], rtol=1e-6, atol=1e-6)
    found = coded.gradient(model)
    D = block.w[:, None] * (
        block.outputs(coded.tables.level_model(model)) - block.objective.targets
    )
    G = B.T @ reference.gamma(codes, D, "anova") @ B
    assert_close(found.gamma().dense(), G)
    h = rng.normal(size=coded.n_features)
    assert_close(found.gamma().forms(h), reference.forms(G, h))


def test_curvature_is_the_diagonal_of_the_gauss_newton_matrix():
    coded, _, P, rng = case("squared", (3, None, 2), m=1)
    model, B, w = some_model(coded, rng), table_matrix(coded.tables), coded.codes.block.w
    Z = model.H @ B.T
    for r in range(4):
        # d o / d h_r = v_r sum_f (z_r - z_rf) B_f[code]
        J = model.V[r] * ((P @ Z[r])[:, None] * (P @ B) - P @ (Z[r][:, None] * B))
        expected = w @ J**2
        assert_close(coded.curvature(model, np.ones(4)).basis[r], expected)
    assert_close(coded.curvature(model, np.ones(4)).linear[:, 0], w @ (P @ B) ** 2)


def test_tables_fold_and_unfold():
    rng = np.random.default_rng(0)
    tables = some_tables(rng, (3, None, 2))
    H, G = rng.normal(size=(5, tables.n_columns)), rng.normal(size=(5, tables.n_levels))
    assert_close(tables.levels(H), H @ table_matrix(tables).T)
    assert_close(tables.columns(G), G @ table_matrix(tables))
    assert_close(tables.inverse(tables.levels(H)), H)
    sparse = Tables([csr_array(np.diag(b)) if b.ndim == 1 else csr_array(b) for b in tables.blocks])
    assert_close(sparse.levels(H), tables.levels(H))
    assert_close(sparse.columns(G), tables.columns(G))
    assert_close(sparse.inverse(tables.levels(H)), H)
    assert sparse == Tables(sparse.blocks)
    assert tables == Tables(tables.blocks)
    assert tables != some_tables(rng, (3, None, 2))


def last(rows, penalty="l1/l2", refit="auto", tol=1e-6, **strength):
    problem = Problem.of(rows.loss, penalty, rows.m, alpha_linear=1.0, **strength or {"alpha": 1.0})
    options = Options(n_components={"output": 10, None: 3}.get(refit, 30), refit=refit, tol=tol)
    *_, state = train(Objective(problem, rows), options)
    return state


@pytest.mark.parametrize("penalty", ["l1", "l1/l2", "l1/linf"])
@pytest.mark.parametrize("refit", ["full", "output", None])
@pytest.mark.parametrize("loss", ["multiclass_logistic", "squared", "binary_squared_hinge"])
def test_whole_fits_equal_those_of_the_plain_matrix(loss, refit, penalty):
    coded, plain, _, _ = case(loss)
    tol = 1e-6 if refit == "full" else 1e-3
    a, b = (last(rows, penalty, refit, tol) for rows in (coded, plain))
    assert_allclose(a.objective, b.objective, rtol=5 * tol)
    if refit == "full":
        assert a.stop == b.stop == "optimal"
        assert_allclose(a.violation, b.violation, rtol=1e-3)


def test_the_constrained_form():
    coded, plain, _, _ = case()
    a, b = (last(rows, tau=2.0, tol=1e-4) for rows in (coded, plain))
    assert_allclose(a.objective, b.objective, rtol=1e-3)


def test_a_rotation_of_the_columns_changes_nothing():
    coded, _, P, _ = case(widths=(3, None, 2))
    turned = CodedRows(coded.codes, coded.tables.orthogonal(P.sum(0)))
    for f in (0, 2):
        B, p = turned.tables.blocks[f], P.sum(0)[OFFSETS[f] : OFFSETS[f + 1]]
        gram = B.T @ (p[:, None] * B)
        assert_allclose(gram - np.diag(gram.diagonal()), 0, atol=1e-10)
        assert_close(B @ B.T, coded.tables.blocks[f] @ coded.tables.blocks[f].T)
    a, b = last(coded), last(turned)
    assert a.stop == b.stop == "optimal"
    assert_allclose(a.objective, b.objective, rtol=1e-5)
    assert_allclose(
        coded.codes.block.outputs(coded.tables.level_model(a.model)),
        coded.codes.block.outputs(turned.tables.level_model(b.model)), atol=1e-2,
    )  # fmt: skip


def test_shards_of_codes(tmp_path):
    rng = np.random.default_rng(0)
    codes, tables = some_codes(rng, 200), some_tables(rng, (3, None, 2))
    y = rng.integers(3, size=200)
    P = csr_array((np.ones(600), codes.ravel(), np.arange(0, 601, 3)), shape=(200, OFFSETS[-1]))
    shards = write_shards(tmp_path / "s", [(P, y)], rows_per_shard=37)
    kind = {"activation": "anova", "fit_lower": "explicit"}
    stored = CodedRows(as_rows(ShardDesign(shards, **kind)), tables)
    memory = CodedRows(as_rows(Design(P, **kind), y), tables)
    a, b = last(stored), last(memory)
    assert not stored.in_memory
    assert memory.in_memory
    assert a.stop == b.stop == "optimal"
    assert_allclose(a.objective, b.objective, rtol=1e-5)
    assert stored.hold_out(0.25, 0)[0].n_features == tables.n_columns


def test_dense_rows_and_other_sizes_are_refused():
    rng = np.random.default_rng(0)
    y = np.arange(3)
    with pytest.raises(TypeError, match="sparse"):
        CodedRows(as_rows(Design(np.eye(3), "anova"), y), Tables([np.ones(3)]))
    with pytest.raises(ValueError, match="15 levels"):
        CodedRows(as_rows(Design(csr_array(np.eye(3)), "anova"), y), some_tables(rng, (1, 1, 1)))
