"""Sums over shards: the same bits whoever adds them, and the same problem as in memory."""

import json
import pickle
import tracemalloc
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain, pairwise
from multiprocessing import get_context
from pathlib import Path
from threading import Barrier, Event
from time import sleep

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from shard_cases import KINDS, Case, bits, cut, last_state

from fastpoly import Design, Shards, alpha_max, conditional_gradient, write_shards
from fastpoly.kernels.gamma import Gamma
from fastpoly.kernels.matrix import ScaledRows
from fastpoly.rows import Rows, ShardDesign, as_rows
from fastpoly.rows.block import Block
from fastpoly.rows.design import DenseCurvature
from fastpoly.rows.engine import (
    Point,
    PointMissing,
    ThreadEngine,
    add,
    equal_ranges,
    node_sum,
    subtrees,
    tree_sum,
)
from fastpoly.rows.rows import shard_statistics
from fastpoly.rows.shards import Shard
from fastpoly.rows.statistics import Moments, Scaling, row_statistics
from fastpoly.state import Model

PENALTIES = ("l1", "l1/l2", "l1/linf")


# --- the tree ---


def sum_of(values, nodes):
    return tree_sum([(node, node_sum(values, node, float, ())) for node in nodes], len(values))


@given(st.integers(1, 70), st.lists(st.integers(0, 70), max_size=6))
def test_the_tree_adds_the_same_numbers_in_the_same_order_however_it_is_cut(n, cuts):
    values = np.random.default_rng(n).standard_normal(n) * 10.0 ** np.arange(n)
    whole = sum_of(values, subtrees(0, n))
    ends = sorted({0, n, *(c for c in cuts if c < n)})
    parts = [x for first, last in pairwise(ends) for x in subtrees(first, last)]
    assert sum_of(values, parts[::-1]) == whole
    assert whole == pytest.approx(values.sum(), rel=1e-12)


def test_the_tree_is_the_one_that_is_documented():
    values = [1e16, 1.0, -1e16, 1.0, 3.0]
    total = sum_of(values, subtrees(0, 5))
    assert total == ((1e16 + 1.0) + (-1e16 + 1.0)) + 3.0
    assert total != sum(values)


@given(st.integers(1, 300), st.integers(1, 20))
def test_ranges_are_equal_and_cover_everything_once(n, n_parts):
    ranges = [
        [s for level, i in nodes for s in range(i << level, i + 1 << level)]
        for nodes in equal_ranges(n, n_parts)
    ]
    assert list(chain(*ranges)) == list(range(n))
    assert len(ranges) == min(n, n_parts)
    assert max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_adding_joins_lists_and_keeps_none():
    a, b = np.ones(2), np.full(2, 2.0)
    total = add((1.0, a, None, [1]), (2.0, b, None, [2]))
    assert total[0] == 3.0
    assert total[1].tolist() == [3.0, 3.0]
    assert total[2:] == (None, [1, 2])


# --- every verb against rows in memory ---


@pytest.mark.parametrize("fit_lower", [None, "augment", "explicit"])
@pytest.mark.parametrize("activation", ["squared", "anova"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_sum_is_that_of_the_rows_in_memory(tmp_path, kind, activation, fit_lower):
    case = Case(kind)
    shards = case.write(tmp_path, 7)
    there = as_rows(ShardDesign(shards, activation, fit_lower=fit_lower))
    here = as_rows(case.design(activation, fit_lower), case.y)
    assert (there.n_samples, there.n_features) == (here.n_samples, here.n_features)
    assert there.loss_at_zero == pytest.approx(here.loss_at_zero, rel=1e-12)
    rng = np.random.default_rng(1)
    d, m, k = here.n_features, 3, 4
    H, V = rng.standard_normal((k, d)), rng.standard_normal((k, m))
    linear = rng.standard_normal((d, m)) if fit_lower == "explicit" else None
    model = Model(H, V, rng.standard_normal(m) * (linear is not None), linear)

    def near(a, b):
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * np.abs(b).max(initial=0))

    near(there.value(model), here.value(model))
    layers = [rows.sum(Block.value_layers, model) for rows in (there, here)]
    for a, b in zip(*layers, strict=True):
        near(a, b)
    a, b = there.gradient(model), here.gradient(model)
    for name in ("value", "V", "intercept", "linear"):
        near(getattr(a, name), getattr(b, name))
    B, h, w = rng.standard_normal((d, m)), rng.standard_normal(d), rng.standard_normal(m)
    ours, theirs = a.gamma(), b.gamma()
    near(ours.matvecs(B), theirs.matvecs(B))
    near(ours.forms(h), theirs.forms(h))
    near(ours.combine(w, h), theirs.combine(w, h))
    S = rng.standard_normal((m, 5))
    near(ours.combined(S).forms(h), theirs.combined(S).forms(h))
    near(a.conjugate(0.7), b.conjugate(0.7))
    near(there.sum(Block.squared_norms, H), here.sum(Block.squared_norms, H))
    parts = [H.ravel(), V.ravel()]
    parts += [model.intercept, linear.ravel()] if linear is not None else []
    x = np.concatenate(parts)
    g, want = np.empty_like(x), np.empty_like(x)
    near(there.value_grad(x, k, g), here.value_grad(x, k, want))
    near(g, want)
    (at, bound), (at_here, bound_here) = (s.ray(model, H[:2] + 1, V[:2]) for s in (there, here))
    near(bound, bound_here)
    near(at(0.3), at_here(0.3))
    penalty = rng.random(k)
    a, b = there.curvature(model, penalty), here.curvature(model, penalty)
    near(a.joint, b.joint)
    if a.directions is None:
        near(a.basis, b.basis)
    else:  # eigenvectors have no sign
        np.testing.assert_allclose(np.abs(a.directions), np.abs(b.directions), rtol=1e-6, atol=1e-8)
        near(a.basis, b.basis)
    near(outputs(there, model)[np.argsort(_order(case, 7))], outputs(here, model))


def outputs(rows, model):
    return np.concatenate([block.outputs(model) for block in rows.blocks])


def _order(case, n_shards):
    """Where the rows of the shards are in the data: codes are sorted by user within a shard."""
    size = -(-case.n // n_shards)
    if case.kind != "codes":
        return np.arange(case.n)
    users = case.table["user"]
    starts = range(0, case.n, size)
    return np.concatenate([s + np.argsort(users[s : s + size], kind="stable") for s in starts])


@pytest.mark.parametrize(
    ("penalty", "n_shards"),
    [
        *((penalty, 7) for penalty in PENALTIES),
        *(pytest.param("l1/l2", n, marks=pytest.mark.slow) for n in (1, 64)),
    ],
)
@pytest.mark.parametrize(("kind", "activation"), [("dense", "squared"), ("codes", "anova")])
def test_fits_end_where_those_in_memory_end(tmp_path, kind, activation, penalty, n_shards):
    case = Case(kind)
    options = {"penalty": penalty, "tol": 1e-8}
    want = last_state(case.design(activation), case.y, **options)
    shards = case.write(tmp_path, n_shards)
    design = ShardDesign(shards, activation, fit_lower="explicit")
    state = last_state(design, **options)
    assert len(shards) == n_shards
    assert state.objective == pytest.approx(want.objective, rel=1e-9)
    assert state.violation <= state.violation_bound * (1 + 1e-12)
    # The certificate, computed independently: all spectra of the matrices at the model.
    G = as_rows(case.design(activation), case.y).gradient(state.model).gamma().dense()
    if penalty == "l1":
        assert np.abs(np.linalg.eigvalsh(G)).max() <= state.violation_bound * (1 + 1e-9)


@pytest.mark.parametrize("refit", ["output", None])
@pytest.mark.parametrize("strength", [{"alpha": 8.0}, {"tau": 3.0, "alpha": None}])
def test_the_other_refits_work_on_shards(tmp_path, refit, strength):
    case = Case("dense")
    how = {"refit": refit, "n_components": 4, "tol": 1e-5, "solver": "fista", **strength}
    want = last_state(case.design("squared"), case.y, **how)
    state = last_state(ShardDesign(case.write(tmp_path, 7), fit_lower="explicit"), **how)
    assert state.objective == pytest.approx(want.objective, rel=1e-3)
    assert state.n_components == want.n_components


def test_newton_and_best_data_need_rows_in_memory(tmp_path):
    design = ShardDesign(Case("dense").write(tmp_path, 3))
    with pytest.raises(ValueError, match="fista"):
        last_state(design, refit="output", solver="newton")
    with pytest.raises(ValueError, match="refine"):
        last_state(design, selection="best_data")


def test_alpha_max_of_shards(tmp_path):
    case = Case("dense")
    want = alpha_max(case.design("squared"), case.y)
    design = ShardDesign(case.write(tmp_path, 5), fit_lower="explicit")
    assert alpha_max(design) == pytest.approx(want, rel=1e-5)


# --- bits (test_bits.py compares engines) ---


def test_bits_depend_on_the_shards(tmp_path):
    case = Case("dense")
    one, other = case.write(tmp_path / "3", 3), case.write(tmp_path / "8", 8)
    assert bits(one) != bits(other)


def test_an_interrupted_run_continues_with_the_same_bits(tmp_path):
    case = Case("dense")
    design = ShardDesign(case.write(tmp_path, 5), fit_lower="explicit")
    how = {"alpha": 4.0, "n_components": 6, "block": 2, "random_state": 0}
    states = list(conditional_gradient(design, **how))
    assert len(states) > 2
    other = ShardDesign(Shards(tmp_path), fit_lower="explicit", n_threads=2)
    *_, last = conditional_gradient(other, start=states[1], **how)
    assert last.H.tobytes() == states[-1].H.tobytes()
    assert last.objective == states[-1].objective


def test_gradients_of_rows_are_made_again_from_the_model(tmp_path):
    case = Case("codes")
    rows = as_rows(ShardDesign(case.write(tmp_path, 4), "anova", n_threads=1))
    rng = np.random.default_rng(0)
    model = Model(rng.standard_normal((2, 24)), rng.standard_normal((2, 3)), np.zeros(3), None)
    gamma = rows.gradient(model).gamma()
    h = rng.standard_normal(24)
    want = gamma.forms(h)
    rows.gradient(model._replace(V=2 * model.V))  # other gradients replace them
    assert gamma.forms(h).tobytes() == want.tobytes()
    rows.blocks.opened.clear()
    assert gamma.forms(h).tobytes() == want.tobytes()
    with pytest.raises(PointMissing):
        rows.blocks[0].gamma_sum(Point(99, None), Gamma.forms, None, h)


def test_a_pass_can_be_repeated(tmp_path):
    """As on a cluster that has lost a worker: sums must not overwrite what blocks keep."""
    rows = as_rows(ShardDesign(Case("dense").write(tmp_path, 4), fit_lower="explicit"))
    rng = np.random.default_rng(0)
    model = rows.empty_model()
    model = model._replace(H=rng.standard_normal((2, 8)), V=rng.standard_normal((2, 3)))
    point = rows.point(model)
    curvatures = DenseCurvature.totals, DenseCurvature.gram
    for call in ((Block.gradient, point), *((Block.curvature, point, c) for c in curvatures)):
        first, again = (rows.sum(*call) for _ in range(2))
        assert pickle.dumps(first) == pickle.dumps(again)


def test_a_process_that_has_the_row_gradients_needs_no_model(tmp_path):
    blocks = as_rows(Case("codes").write(tmp_path, 1), loss="logistic").blocks
    rng = np.random.default_rng(0)
    model = Model(rng.standard_normal((2, 24)), rng.standard_normal((2, 3)), np.zeros(3), None)
    block, point = blocks[0], Point(0, model, send=True)
    block.gradient(point)
    there = pickle.loads(pickle.dumps(Point(0, model)))
    assert there.model is None
    for S in (None, np.ones((3, 2))):
        found = block.gamma_sum(there, Gamma.forms, S, np.ones(24))
        assert found.tobytes() == block.gamma_sum(point, Gamma.forms, S, np.ones(24)).tobytes()


def test_two_threads_may_compute_the_same_shard_at_once(tmp_path):
    """As on a worker that still runs a task of a pass that was given up."""
    case = Case("dense", n=2000)
    design = ShardDesign(case.write(tmp_path, 1), n_threads=1)
    rng = np.random.default_rng(0)
    h = rng.standard_normal(8)
    models = [
        Model(rng.standard_normal((20, 8)), rng.standard_normal((20, 3)), np.zeros(3), None)
        for _ in range(2)
    ]

    def steps(blocks, number):
        point = Point(number, models[number])
        value, GV, *_ = node_sum(blocks, (0, 0), Block.gradient, (point,))
        forms = node_sum(blocks, (0, 0), Block.gamma_sum, (point, Gamma.forms, None, h))
        return np.float64(value).tobytes() + GV.tobytes() + forms.tobytes()

    want = [steps(as_rows(design).blocks, number) for number in range(2)]
    blocks, start = as_rows(design).blocks, Barrier(2)

    def many(number):
        start.wait()
        return {steps(blocks, number) for _ in range(20)}

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(many, range(2))) == [{want[0]}, {want[1]}]


def test_arguments_of_a_pass_are_checked_before_it_begins(tmp_path, monkeypatch):
    rows = as_rows(ShardDesign(Case("codes").write(tmp_path, 3), "anova", n_threads=1))
    gamma = rows.gradient(rows.empty_model()).gamma()
    monkeypatch.setattr(ThreadEngine, "sum", lambda *_: pytest.fail("too late"))
    bad = np.full(24, np.nan)
    for name, arguments in (
        ("matvecs", [bad[:, None] * np.ones(3)]),
        ("forms", [bad]),
        ("combine", [np.ones(3), bad]),
        ("combine", [np.full(3, np.inf), np.ones(24)]),
        ("forms", [np.ones(21)]),
    ):
        with pytest.raises(ValueError, match="must have shape|contains NaN"):
            getattr(gamma, name)(*arguments)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
def test_threads_sum_every_shard_once(n_threads):
    numbers = [10.0**i for i in range(14)]
    assert ThreadEngine(n_threads).sum(numbers, float) == sum_of(numbers, subtrees(0, 14))


def test_the_largest_subtrees_come_first():
    """In the end all threads have single shards: 10 on two threads took the time of 12."""
    engine, free, begun = ThreadEngine(2), Event(), []
    blocked = engine._pool().submit(free.wait)  # so that one thread computes all
    try:
        engine.sum(range(10), lambda number: begun.append(number) or 1)
    finally:
        free.set()
        blocked.result()
    assert begun == [8, 9, *range(8)]


@pytest.mark.parametrize("error", [ValueError, IndexError, KeyboardInterrupt])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_an_error_ends_the_pass(n_threads, error):
    """Whichever thread meets it; no other is left running, and few shards come after it."""
    begun, ended = [], []

    def call(number):
        begun.append(number)
        if number == 40:
            raise error("bad shard")
        sleep(0.001)
        ended.append(number)
        return 1

    with pytest.raises(error, match="bad shard"):
        ThreadEngine(n_threads).sum(range(400), call)
    assert sorted(begun) == sorted([*ended, 40])
    assert len(begun) < 400


def test_a_pass_does_not_wait_for_a_thread_that_is_busy():
    engine, free = ThreadEngine(2), Event()
    blocked = engine._pool().submit(free.wait)
    try:
        with ThreadPoolExecutor(1) as other:
            found = other.submit(engine.sum, range(9), float)
            assert found.result(timeout=60) == 36
    finally:
        free.set()
    assert blocked.result()


# --- memory ---


def memory_for(shards, share):
    """Bytes that are enough for a share of the shards."""
    form = as_rows(shards).blocks.form
    return share * sum(form.kept_bytes(shard) for shard in shards)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.01, 0.5, 1.0])
def test_the_same_bits_with_any_memory(tmp_path, kind, share, n_threads):
    """The blocks of the first shards that fit are kept; the others are opened in every pass."""
    shards = Case(kind).write(tmp_path, 8)
    limited = Shards(tmp_path, memory=memory_for(shards, share))
    rows = as_rows(limited)
    assert rows.blocks.n_kept == int(8 * share)
    rows.gradient(rows.empty_model()).gamma().forms(np.ones(rows.n_features))
    assert sorted(rows.blocks.opened) == list(range(rows.blocks.n_kept))
    how = {"n_components": 4, "max_iter": 10}
    assert bits(limited, n_threads=n_threads, **how) == bits(shards, **how)


def test_the_same_bits_with_little_memory_in_other_processes(tmp_path):
    shards = Case("csr").write(tmp_path, 5)
    limited = Shards(tmp_path, memory=memory_for(shards, 0.5))
    with ProcessPoolExecutor(2, mp_context=get_context("forkserver")) as processes:
        assert bits(limited.on(processes)) == bits(shards)


def halved(d):
    return Scaling(None, np.full(d, 0.5), np.ones(d, bool))


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_keep_no_more_than_is_counted(tmp_path, kind):
    case = Case(kind, n=40_000)
    shards = case.write(tmp_path, 4)
    rows = as_rows(ShardDesign(shards, "anova", n_threads=1))
    rows = Rows.of_shards(shards, replace(rows.blocks.form, scaling=halved(shards.n_features)), 1)
    d, rng = shards.n_features, np.random.default_rng(0)
    model = Model(rng.standard_normal((2, d)), rng.standard_normal((2, 3)), np.zeros(3), None)
    limit = sum(rows.blocks.form.kept_bytes(shard) for shard in shards)

    def gamma():
        rows.gradient(model).gamma().combined(np.ones((3, 3))).forms(np.ones(d))

    def ray():
        rows.ray(model, model.H, model.V)[0](0.5)

    tracemalloc.start()
    try:
        for use in (gamma, ray, lambda: rows.curvature(model, np.ones(2))):
            use()
            assert tracemalloc.get_traced_memory()[0] < limit + 2e5
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("memory", [0, -1.0, np.nan, np.inf])
def test_memory_is_a_positive_number(tmp_path, memory):
    Case("dense", n=20).write(tmp_path, 2)
    with pytest.raises(ValueError, match="memory"):
        Shards(tmp_path, memory=memory)
    with pytest.raises(TypeError, match="memory"):
        Shards(tmp_path, memory="2 GB")


def test_parts_keep_the_limit(tmp_path):
    Case("dense").write(tmp_path, 2)
    shards = Shards(tmp_path, memory=1e8)
    assert {part.memory for part in (shards.take([1]), *shards.split(0.5, 0.5))} == {1e8}


# --- strange shards ---


def replicated(folder, times):
    """List every shard several times in the manifest."""
    path = Path(folder) / "manifest.json"
    content = json.loads(path.read_text())
    content["shards"] *= times
    content["n_samples"] *= times
    path.write_text(json.dumps(content))
    return Shards(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_ten_copies_are_ten_times_the_problem(tmp_path, kind):
    case = Case(kind, n=300)
    activation = "squared" if kind == "dense" else "anova"
    shards = case.write(tmp_path, 3)
    how = {"activation": activation, "fit_lower": "explicit"}
    one = last_state(ShardDesign(shards, **how), alpha=5.0, alpha_linear=1.0)
    many = ShardDesign(replicated(tmp_path, 10), **how)
    assert many.shards.n_samples == 3000
    state = last_state(many, alpha=50.0, alpha_linear=10.0)
    assert state.objective == pytest.approx(10 * one.objective, rel=1e-6)  # their tol
    assert state.violation == pytest.approx(10 * one.violation, rel=1e-4)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=12), st.sampled_from(KINDS))
def test_shards_of_any_size_even_none(tmp_path_factory, sizes, kind):
    """Empty shards, shards of one row, shards without some class."""
    n = sum(sizes) + 40
    case = Case(kind, n=n)
    order = np.argsort(case.y, kind="stable")  # so that most shards lack classes
    case.X, case.y = case.X[order], case.y[order]
    case.table = {name: column[order] for name, column in case.table.items()}
    folder = tmp_path_factory.mktemp("any")
    shards = case.write(folder, 1)
    shards = cut(shards, [*sizes, 40])
    activation = "squared" if kind == "dense" else "anova"
    there = as_rows(ShardDesign(shards, activation, fit_lower="explicit"))
    here = as_rows(case.design(activation), case.y)
    rng = np.random.default_rng(0)
    d, m = there.n_features, there.m  # few rows may have two classes
    model = Model(
        rng.standard_normal((3, d)), rng.standard_normal((3, m)), np.ones(m), np.ones((d, m))
    )
    a, b = there.gradient(model), here.gradient(model)
    assert a.value == pytest.approx(b.value, rel=1e-10)
    np.testing.assert_allclose(a.V, b.V, rtol=1e-8, atol=1e-8)
    h = rng.standard_normal(d)
    np.testing.assert_allclose(a.gamma().forms(h), b.gamma().forms(h), rtol=1e-8, atol=1e-8)
    norms = [rows.sum(Block.squared_norms, model.H) for rows in (there, here)]
    np.testing.assert_allclose(*norms, rtol=1e-10)
    near = there.curvature(model, np.ones(3)), here.curvature(model, np.ones(3))
    np.testing.assert_allclose(near[0].joint, near[1].joint, rtol=1e-8, atol=1e-8)


# --- targets, weights, parts ---


def test_classes_can_have_targets_and_weights(tmp_path):
    case = Case("codes")
    signs = np.where(np.arange(3)[:, None] <= np.arange(2), 1.0, -1.0)
    by_class = np.array([1.0, 2.0, 0.5])
    shards = case.write(tmp_path, 4)
    design = ShardDesign(shards, "anova", fit_lower="explicit")
    how = {"loss": "binary_logistic", "alpha": 6.0}
    state = last_state(design, signs, sample_weight=by_class, **how)
    want = last_state(case.design("anova"), signs[case.y], sample_weight=by_class[case.y], **how)
    assert state.objective == pytest.approx(want.objective, rel=1e-9)


def test_levels_are_numbers_for_the_squared_loss(tmp_path):
    case = Case("dense")
    state = last_state(ShardDesign(case.write(tmp_path, 4), fit_lower="explicit"), loss="squared")
    want = last_state(case.design("squared"), case.y[:, None] * 1.0, loss="squared")
    assert state.objective == pytest.approx(want.objective, rel=1e-9)


def test_targets_that_are_numbers(tmp_path):
    case = Case("dense")
    y = case.X @ np.linspace(-1, 1, 16).reshape(8, 2) + case.X[:, :1] ** 2
    shards = write_shards(tmp_path, [(case.X, y)], rows_per_shard=100)
    assert shards.classes is None
    design = ShardDesign(shards, fit_lower="explicit")
    state = last_state(design, loss="squared")
    want = last_state(case.design("squared"), y, loss="squared")
    assert state.objective == pytest.approx(want.objective, rel=1e-9)
    with pytest.raises(ValueError, match="classes"):
        last_state(design, loss="multiclass_logistic")


def test_a_label_indicator_suits_a_binary_loss(tmp_path):
    case = Case("dense")
    labels = np.column_stack([case.X[:, 0] > 0, case.X[:, 1] * case.X[:, 2] > 0]).astype(int)
    shards = write_shards(tmp_path, [(case.X, labels)], rows_per_shard=100)
    state = last_state(ShardDesign(shards, fit_lower="explicit"), loss="binary_logistic")
    signs = np.where(labels, 1.0, -1.0)
    want = last_state(case.design("squared"), signs, loss="binary_logistic")
    assert state.objective == pytest.approx(want.objective, rel=1e-9)


def test_many_classes(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((700, 4)), np.arange(700) % 300
    shards = write_shards(tmp_path, [(X, y)], rows_per_shard=200)
    there, here = as_rows(shards), as_rows(Design(X), y)
    model = Model(rng.standard_normal((2, 4)), rng.standard_normal((2, 300)), np.zeros(300), None)
    want = here.value(model)
    assert there.value(model) == pytest.approx(want, rel=1e-12)
    assert there.gradient(model).value == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_stored_weights(tmp_path, kind):
    case = Case(kind)
    w = np.random.default_rng(5).random(case.n) * (np.arange(case.n) % 3 > 0)
    how = {"rows_per_shard": 100}
    if kind == "codes":
        names = {"one_hot": ["user", "item"], "target": "stars", "weight": "w"}
        shards = write_shards(tmp_path, [{**case.table, "w": w}], **names, **how)
    else:
        shards = write_shards(tmp_path, [(case.X, case.y, w)], **how)
    design = ShardDesign(shards, "anova", fit_lower="explicit")
    state = last_state(design)
    want = last_state(case.design("anova"), case.y, sample_weight=w)
    assert state.objective == pytest.approx(want.objective, rel=1e-9)
    assert shard_statistics(shards).weight == pytest.approx(w.sum())


def test_parts_are_rows_of_weight_zero(tmp_path):
    case = Case("dense")
    train, test = case.write(tmp_path, 4).split(0.7, 0.3, seed=3)
    masks = [np.concatenate([s.weights() for s in part]) for part in (train, test)]
    assert (masks[0] + masks[1] == 1).all()
    assert 0.6 < masks[0].mean() < 0.8
    kept = masks[0] > 0
    there, here = as_rows(train), as_rows(Design(case.X[kept]), case.y[kept])
    rng = np.random.default_rng(0)
    model = Model(rng.standard_normal((2, 8)), rng.standard_normal((2, 3)), np.zeros(3), None)
    want = here.value(model)
    assert there.value(model) == pytest.approx(want, rel=1e-12)
    np.testing.assert_allclose(there.gradient(model).V, here.gradient(model).V, rtol=1e-10)
    again = case.write(tmp_path / "again", 4).split(0.7, 0.3, seed=3)[0]
    assert (np.concatenate([s.weights() for s in again]) == masks[0]).all()
    assert train.digest != test.digest


def test_whole_shards_can_be_taken(tmp_path):
    case = Case("dense")
    shards = case.write(tmp_path, 4)
    some = shards.take([0, 2])
    size = len(shards[0].targets())
    kept = np.concatenate([np.arange(size), np.arange(2 * size, 3 * size)])
    state = last_state(ShardDesign(some, fit_lower="explicit"))
    want = last_state(Design(case.X[kept], fit_lower="explicit"), case.y[kept])
    assert state.objective == pytest.approx(want.objective, rel=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_statistics(tmp_path, kind):
    case = Case(kind)
    X = case.X if kind == "dense" else case.X.toarray()
    if kind != "codes":
        X = X.copy()
        X[:, 5] = 0
        case.X = X if kind == "dense" else type(case.X)(X)
    found = shard_statistics(case.write(tmp_path, 5))
    assert found.weight == case.n
    assert found.weights.tolist() == np.bincount(case.y).tolist()
    assert found.largest == np.abs(X).max()
    assert found.by_column.tolist() == np.abs(X).max(axis=0).tolist()
    if kind == "dense":
        np.testing.assert_allclose(found.features.mean, X.mean(axis=0), atol=1e-13)
        np.testing.assert_allclose(found.features.deviation, X.std(axis=0), rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_statistics_of_weighted_rows(tmp_path, kind):
    """Weights of rows and of classes count alike; rows of weight 0 do not count at all."""
    case = Case(kind)
    w = np.where(np.arange(case.n) % 3, np.random.default_rng(5).random(case.n), 0)
    by_class = np.array([0.5, 0.0, 3.0])
    if kind == "codes":
        names = {"one_hot": ["user", "item"], "target": "stars", "weight": "w"}
        table = {**case.table, "w": w}
        shards = write_shards(tmp_path, [table], rows_per_shard=100, **names)
    else:
        shards = write_shards(tmp_path, [(case.X, case.y, w)], rows_per_shard=100)
    found = shard_statistics(shards, by_class=by_class)
    X = case.X if kind == "dense" else case.X.toarray()
    w = w * by_class[case.y]
    np.testing.assert_allclose(found.weights, np.bincount(case.y, w))
    assert found.largest == np.abs(X).max()
    assert found.by_column.tolist() == np.abs(X[w > 0]).max(axis=0).tolist()
    if kind == "dense":
        mean = np.average(X, axis=0, weights=w)
        np.testing.assert_allclose(found.features.mean, mean, rtol=1e-12)
        variance = np.average((X - mean) ** 2, axis=0, weights=w)
        np.testing.assert_allclose(found.features.deviation, np.sqrt(variance), rtol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("numbers", [False, True])
@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_statistics_of_both_kinds_of_rows(tmp_path, kind, numbers, weighted):
    """Rows in memory and in shards give the same results as NumPy."""
    case = Case(kind)
    X = case.X if kind == "dense" else case.X.toarray()
    X = np.column_stack([X, np.zeros(case.n), 5 + 0.1 * X[:, 0]])
    rng = np.random.default_rng(3)
    w = np.where(np.arange(case.n) % 3, rng.random(case.n), 0) if weighted else None
    y = rng.standard_normal((case.n, 2)) if numbers else case.y
    rows = X if kind == "dense" else sp.csr_array(X)
    batch = (rows, y) if w is None else (rows, y, w)
    there = shard_statistics(write_shards(tmp_path, [batch], rows_per_shard=100))
    here = row_statistics(rows, y, w, 0 if numbers else 3)
    counted = np.ones(case.n, dtype=bool) if w is None else w > 0
    for found in (here, there):
        assert found.weight == pytest.approx(counted.sum() if w is None else w.sum())
        assert found.largest == np.abs(X).max()
        assert found.by_column.tolist() == np.abs(X[counted]).max(axis=0).tolist()
        assert np.flatnonzero(found.by_column == 0).tolist() == [8]
        assert (found.features is None) == (kind == "csr")
        if numbers:
            assert found.weights is None
            np.testing.assert_allclose(found.targets.mean, np.average(y, axis=0, weights=w))
        else:
            np.testing.assert_allclose(found.weights, np.bincount(y, w))
    if not numbers:
        assert there.targets.mean == pytest.approx(np.average(y, weights=w))


def test_moments_keep_their_digits():
    """A sum of squares would lose all of them."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((300, 1))
    parts = np.split(np.hstack([x + 1e9, np.full_like(x, 0.1)]), [0, 100, 101])
    found = sum(map(Moments.of, parts[1:]), Moments.of(parts[0]))
    rounded = x + 1e9 - 1e9
    np.testing.assert_allclose(found.mean - [1e9, 0.1], [rounded.mean(), 0], atol=2e-7)
    np.testing.assert_allclose(found.deviation, [rounded.std(), 0], rtol=1e-7)


def test_errors_of_threads_leave_nothing_running(tmp_path):
    shards, engine = list(Case("dense").write(tmp_path, 9)), ThreadEngine(2)
    with pytest.raises(TypeError):
        engine.sum(shards, Shard.statistics)  # without an argument
    assert engine.sum(shards, Shard.statistics, None).weight == 640


# --- features and targets that are scaled ---


@pytest.mark.parametrize("fit_lower", [None, "augment", "explicit"])
@pytest.mark.parametrize("activation", ["squared", "anova"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_scaled_features(tmp_path, dtype, kind, activation, fit_lower):
    case = Case(kind)
    case.X = case.X.astype(dtype)
    X = np.asarray(case.X if kind == "dense" else case.X.toarray(), dtype=np.float64)
    rng = np.random.default_rng(2)
    center = rng.standard_normal(X.shape[1]) * (kind == "dense")
    factor = rng.random(X.shape[1]) + 0.5
    scaling = Scaling(center if kind == "dense" else None, factor, np.ones(len(factor), bool))
    shards = case.write(tmp_path, 5)
    form = as_rows(ShardDesign(shards, activation, fit_lower=fit_lower)).blocks.form
    there = Rows.of_shards(shards, replace(form, scaling=scaling))
    order = _order(case, 5)
    scaled = (X[order] - center) * factor
    if kind == "csr":  # whose scaled values are kept, in their own precision
        scaled = X[order].astype(dtype) * factor.astype(dtype)
    here = as_rows(Design(scaled, activation, fit_lower=fit_lower), case.y[order])
    d = there.n_features
    linear = rng.standard_normal((d, 3)) if fit_lower == "explicit" else None
    model = Model(rng.standard_normal((2, d)), rng.standard_normal((2, 3)), np.zeros(3), linear)
    values = [rows.value(model) for rows in (there, here)]
    np.testing.assert_allclose(*values, rtol=1e-10)
    a, b = there.gradient(model), here.gradient(model)
    np.testing.assert_allclose(a.V, b.V, rtol=1e-8)
    B = rng.standard_normal((d, 3))
    np.testing.assert_allclose(a.gamma().matvecs(B), b.gamma().matvecs(B), rtol=1e-8, atol=1e-8)
    norms = [rows.sum(Block.squared_norms, model.H) for rows in (there, here)]
    np.testing.assert_allclose(*norms, rtol=1e-10)
    x = np.concatenate([part.ravel() for part in model[: 4 if linear is not None else 2]
                        if part is not None])  # fmt: skip
    g, want = np.empty_like(x), np.empty_like(x)
    there.value_grad(x, 2, g)
    here.value_grad(x, 2, want)
    np.testing.assert_allclose(g, want, rtol=1e-8, atol=1e-8)
    if kind == "dense":
        found, wanted = there.curvature(model, np.ones(2)), here.curvature(model, np.ones(2))
        np.testing.assert_allclose(found.joint, wanted.joint, rtol=1e-8, atol=1e-8)
    found = [outputs(rows, model) for rows in (there, here)]
    np.testing.assert_allclose(*found, rtol=1e-8, atol=1e-8)


def test_scaled_rows_in_memory_are_the_rows_scaled():
    rng = np.random.default_rng(0)
    X, center, factor = rng.random((300, 4)), rng.random(4), rng.random(4)
    y = (X[:, 0] * X[:, 1] > 0.25).astype(int)
    lazy, plain = Design(ScaledRows(X, center, factor)), Design((X - center) * factor)
    states = [
        last_state(d, y, alpha=0.5, refit=r) for d in (lazy, plain) for r in ("full", "output")
    ]
    assert states[0].objective == pytest.approx(states[2].objective, rel=1e-12)
    assert states[1].objective == pytest.approx(states[3].objective, rel=1e-12)
    again = pickle.loads(pickle.dumps(lazy))
    H = rng.standard_normal((2, 4))
    np.testing.assert_array_equal(again.activations(H), lazy.activations(H))


def test_scaled_targets(tmp_path):
    case = Case("dense")
    y = 100 + 7 * case.X @ np.linspace(-1, 1, 16).reshape(8, 2)
    shards = write_shards(tmp_path, [(case.X, y)], rows_per_shard=100)
    found = shard_statistics(shards)
    np.testing.assert_allclose(found.targets.mean, y.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(found.targets.deviation, y.std(axis=0), rtol=1e-12)
    center, unit = y.mean(axis=0), y.std(axis=0)
    scaling = Scaling(None, None, np.ones(8, bool), center, unit)
    rows = as_rows(ShardDesign(shards, fit_lower="explicit"), loss="squared")
    rows = Rows.of_shards(shards, replace(rows.blocks.form, scaling=scaling))
    state = last_state(rows, loss="squared", alpha=1.0)
    want = last_state(case.design("squared"), (y - center) / unit, loss="squared", alpha=1.0)
    assert state.objective == pytest.approx(want.objective, rel=1e-9)
