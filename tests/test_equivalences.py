"""One problem, written in two ways, has one solution; interrupted runs have the same bits."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from reference_fits import made_up, run

from fastpoly import Design, conditional_gradient
from fastpoly.kernels.features import ACTIVATIONS
from fastpoly.kernels.losses import LOSSES
from fastpoly.kernels.penalties import PENALTIES

TOL = {"tol": 3e-5, "n_components": 200}


def fitted(X, y, activation="squared", lower=None, n_threads=1, **options):
    """The last state and its outputs."""
    design = Design(X, activation, fit_lower=lower, n_threads=n_threads)
    strength = {"alpha": 5.0 if activation == "squared" else 1.5}
    state = run(design, y, **{**strength, **options})[-1]
    O = design.outputs(state.H, state.V) + state.intercept
    if state.linear is not None:
        O += design.linear.outputs(state.linear)
    if np.ndim(y) == 1:  # a constant added to all outputs changes no loss of class codes
        O -= O.mean(axis=1, keepdims=True)
    return state, O


def assert_same(one, other, O_one, O_other, rel=1e-5, atol=0.005):
    assert one.n_components > 0
    assert one.objective == pytest.approx(other.objective, rel=rel)
    np.testing.assert_allclose(O_one, O_other, atol=atol * np.abs(O_one).max())


@pytest.fixture
def problem():
    return made_up(20, n=60, d=3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("lower", [None, "explicit"])
def test_integer_weights_are_repeated_rows(loss, lower):
    kind = loss if LOSSES[loss].target == "real" else "binary_logistic"
    X, y = made_up(21, n=30, d=3, loss="" if LOSSES[loss].target == "label" else kind)
    w = np.random.default_rng(0).integers(0, 4, len(X))
    options = {"loss": loss, "n_outputs": 3, "lower": lower, "alpha": 10.0, **TOL}
    one = fitted(X, y, sample_weight=w, **options)
    other = fitted(np.repeat(X, w, axis=0), np.repeat(y, w, axis=0), **options)
    assert_same(one[0], other[0], np.repeat(one[1], w, axis=0), other[1])
    unweighted = fitted(X, y, **options)
    assert unweighted[0].objective != pytest.approx(one[0].objective, rel=1e-2)


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_order_does_not_matter(problem, penalty, activation):
    X, y = problem
    rng = np.random.default_rng(0)
    options = {"activation": activation, "penalty": penalty, **TOL}
    state, O = fitted(X, y, **options)
    rows, columns, codes = rng.permutation(60), rng.permutation(3), np.array([2, 0, 1])
    by_rows = fitted(X[rows], y[rows], **options)
    assert_same(state, by_rows[0], O[rows], by_rows[1])
    by_columns = fitted(X[:, columns], y, **options)
    assert_same(state, by_columns[0], O, by_columns[1])
    by_codes = fitted(X, codes[y], **options)
    # output codes[c] of the new model is output c of the old one; softmax adds nothing to that
    assert_same(state, by_codes[0], O, by_codes[1][:, codes])


@pytest.mark.parametrize("refit", ["output", "full", None])
@pytest.mark.parametrize("lower", [None, "augment", "explicit"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_dense_is_sparse_is_stored_is_recomputed_is_threaded(problem, activation, lower, refit):
    X, y = problem
    X = np.where(np.abs(X) > 0.3, X, 0)
    options = {"activation": activation, "lower": lower, "refit": refit, "n_components": 4}
    if refit == "full":
        options["n_components"] = 60  # enough for the optimum
    # The other solver chooses its model by how the activations are stored.
    options["solver"] = "fista"
    state, O = fitted(X, y, **options)
    variants = {
        "csr": (sp.csr_array(X), {}),
        "recomputed": (X, {"memory": 0}),
        "csr, recomputed": (sp.csr_array(X), {"memory": 0}),
        "two threads": (X, {"n_threads": 2}),
        "csr, two threads": (sp.csr_array(X), {"n_threads": 2}),
    }
    for name, (data, more) in variants.items():
        other, O_other = fitted(data, y, **options, **more)
        # The joint descent preconditions sparse rows differently: other rounds, the same optimum.
        if refit != "full":
            assert other.n_iter == state.n_iter, name
        else:
            assert other.stop == state.stop == "optimal", name
            assert max(state.violation, other.violation) <= 1.001 * state.alpha, name
        assert_same(state, other, O, O_other, rel=1e-4, atol=0.02)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_augment_is_a_column_of_ones(problem, activation, sparse):
    X, y = problem
    as_data = sp.csr_array if sparse else np.asarray
    one = fitted(as_data(X), y, activation, "augment", **TOL)
    other = fitted(as_data(np.column_stack([np.ones(len(X)), X])), y, activation, **TOL)
    assert_same(one[0], other[0], one[1], other[1])
    assert one[0].H.shape[1] == 4


@pytest.mark.parametrize("lower", [pytest.param(None, marks=pytest.mark.slow), "explicit"])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_solvers_agree(problem, penalty, lower):
    X, y = problem
    # One vector per round takes hundreds of rounds for the last digits.
    paper = {"block": 1, "refit": "output", "tol": 3e-4, "n_components": 200}
    objectives = [
        fitted(X, y, penalty=penalty, lower=lower, solver=solver, **paper)[0].objective
        for solver in ("fista", "newton")  # "auto" is one of them
    ]
    more = fitted(X, y, penalty=penalty, lower=lower, memory=0, **paper)[0]
    joint = fitted(X, y, penalty=penalty, lower=lower, refit="full", **TOL)[0]
    objectives += [more.objective, joint.objective]
    np.testing.assert_allclose(objectives, objectives[0], rtol=3e-4)


# ---- an interrupted run --------------------------------------------------------------------------

FIELDS = ("H", "V", "intercept", "linear")
NUMBERS = (
    "objective", "loss", "penalty", "violation", "violation_bound", "n_iter", "stop",
    "refit_gap", "own_dual_norm",
)  # fmt: skip


def assert_bits(one, other):
    for name in FIELDS:
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None)
        if a is not None:
            np.testing.assert_array_equal(a, b, err_msg=name)
    for name in NUMBERS:
        assert getattr(one, name) == getattr(other, name), name
    np.testing.assert_array_equal([one.gap_found, one.gap], [other.gap_found, other.gap])
    assert one.memory[:2] == other.memory[:2]
    np.testing.assert_array_equal(one.memory.vectors, other.memory.vectors)


RUNS = [
    ("output", False, 1e9, None, "alpha"),
    ("output", True, 0, None, "alpha"),
    ("full", False, 0, None, "alpha"),
    ("full", True, 1e9, None, "alpha"),
    (None, False, 1e9, None, "alpha"),
    (None, True, 0, None, "alpha"),
    ("output", False, 1e9, "explicit", "alpha"),
    ("output", True, 0, "explicit", "tau"),
    (None, False, 1e9, "explicit", "alpha"),
    ("full", True, 1e9, "augment", "alpha"),
    ("full", False, 1e9, "explicit", "alpha"),
    ("output", True, 1e9, "augment", "tau"),
    (None, True, 0, "augment", "tau"),
]


@pytest.mark.parametrize(("refit", "sparse", "memory", "lower", "form"), RUNS)
def test_resumed_is_uncut(refit, sparse, memory, lower, form):
    X, y = made_up(22, n=60, d=60 if sparse else 4, m=3, hidden=4)
    X = sp.csr_array(np.where(np.abs(X) > 1, X, 0)) if sparse else X
    design = Design(X, fit_lower=lower)
    options = {"refit": refit, "memory": memory, form: 2.0 if form == "alpha" else 1.0}
    options |= {"block": 1}
    uncut = run(design, y, n_components=6, **options)
    assert len(uncut) >= 4
    for cut in range(len(uncut)):
        again = run(design, y, n_components=6, start=uncut[cut], **options)
        rest = uncut[cut + 1 :] or uncut[-1:]  # a state where nothing is left to do comes back
        assert len(again) == len(rest)
        for one, other in zip(again, rest, strict=True):
            assert_bits(one, other)


@pytest.mark.parametrize("sparse", [False, True])
def test_more_components_later(sparse):
    X, y = made_up(23, n=80, d=8)
    design = Design(sp.csr_array(X) if sparse else X, fit_lower="augment")
    options = {"alpha": 0.5, "selection": "random+refine", "refit": "output"}
    first = run(design, y, n_components=4, **options)[-1]
    assert first.stop == "n_components"
    # The seed is the state's, not the argument's.
    later = run(design, y, n_components=8, start=first, **{**options, "random_state": 99})[-1]
    assert_bits(later, run(design, y, n_components=8, **options)[-1])
    assert later.n_components == 8
    assert later.timings["selection"] > first.timings["selection"]


@pytest.mark.parametrize("sparse", [False, True])
def test_more_components_later_in_blocks(sparse):
    """Blocks depend on n_components, so the run differs, but it reaches the same optimum."""
    X, y = made_up(23, n=80, d=8)
    design = Design(sp.csr_array(X) if sparse else X, fit_lower="augment")
    first = run(design, y, alpha=5.0, n_components=4)[-1]
    assert first.stop == "n_components"
    later = run(design, y, alpha=5.0, n_components=60, start=first)
    assert later[0].n_iter == first.n_iter + 1
    assert later[-1].n_components > 4
    assert later[-1].objective < first.objective
    straight = run(design, y, alpha=5.0, n_components=60)[-1]
    assert later[-1].stop == straight.stop == "optimal"
    assert later[-1].objective == pytest.approx(straight.objective, rel=1e-3)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("penalty", PENALTIES)
def test_resumed_is_uncut_in_blocks(penalty, sparse):
    X, y = made_up(22, n=100, d=60 if sparse else 6, m=3, hidden=4)
    X = sp.csr_array(np.where(np.abs(X) > 1, X, 0)) if sparse else X
    design, options = Design(X), {"alpha": 2.0, "penalty": penalty, "n_components": 60}
    uncut = run(design, y, **options)
    assert len(uncut) >= 4
    for cut in (0, 1, len(uncut) // 2, len(uncut) - 1):
        again = run(design, y, start=uncut[cut], **options)
        rest = uncut[cut + 1 :] or uncut[-1:]
        assert len(again) == len(rest)
        for one, other in zip(again, rest, strict=True):
            assert_bits(one, other)


def test_a_start_of_another_problem_is_refitted(problem):
    X, y = problem
    design = Design(X)
    start = run(design, y, alpha=30.0, **TOL)[-1]
    w = np.linspace(0, 3, len(X))
    for options in ({"alpha": 10.0}, {"alpha": 30.0, "sample_weight": w}, {"tau": 0.5}):
        cold = run(design, y, **options, **TOL)[-1]
        warm = run(design, y, start=start, **options, **TOL)
        assert warm[0].n_iter == start.n_iter
        assert warm[0].alpha == options.get("alpha")
        assert warm[-1].objective == pytest.approx(cold.objective, rel=3e-4)
    assert warm[0].penalty <= 0.5 * (1 + 1e-12)


def test_the_same_seed_gives_the_same_bits(problem):
    X, y = problem
    design = Design(X)
    one, other = (run(design, y, selection="random", random_state=3) for _ in range(2))
    assert_bits(one[-1], other[-1])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        *_, state = conditional_gradient(design, y, random_state=np.random.default_rng(0))
    assert state.stop
