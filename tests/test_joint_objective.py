"""The joint objective over H and V against plain NumPy, for every loss and every form of X."""

import doctest
import os
import pickle
import signal
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import fast_activations
from reference_losses import LABELED, whole_matrix
from scipy.sparse import csr_array

from fastpoly.kernels import joint as module
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.losses import LOSSES, get_loss
from fastpoly.kernels.matrix import as_matrix

EVERY_LOSS = pytest.mark.parametrize("name", sorted(LOSSES))
BOTH = pytest.mark.parametrize("activation", ["squared", "anova"])
STORED = (
    "dense",
    "float32",
    "csr",
    "csr float32",
    "csr wide",
    "pairs of ones",
    "pairs",
    "shuffled",
)
EVERY_FORM = pytest.mark.parametrize("stored", STORED)


def rows_of(stored, n, d, rng):
    """X in one of its forms; pairs are sorted by their first feature unless they are shuffled."""
    if stored in ("dense", "float32"):
        return rng.normal(size=(n, d)).astype("f4" if stored == "float32" else "f8")
    if stored.startswith("csr"):
        X = rng.normal(size=(n, d)) * (rng.random((n, d)) < (0.7 if stored == "csr wide" else 0.3))
        X[: n // 4] = 0  # empty rows
        return csr_array(X.astype("f4" if stored == "csr float32" else "f8"))
    half = max(1, d // 2)
    users, items = rng.integers(0, half, n), rng.integers(half, d, n)
    if stored != "shuffled":
        users.sort()
    data = np.ones(2 * n) if stored == "pairs of ones" else rng.normal(size=2 * n)
    if stored == "pairs":
        data[::2] = np.round(data[::2])  # users of few values, some of them 0
    indices = np.column_stack([users, items]).ravel()
    return csr_array((data, indices, np.arange(0, 2 * n + 1, 2)), shape=(n, d))


class Case:
    """An objective, its parameters and the same in plain NumPy."""

    def __init__(self, name="binary_logistic", stored="dense", activation="squared", *, n=30, d=6,
                 k=3, m=3, weights=True, augment=False, linear=False, n_threads=1):  # fmt: skip
        rng = np.random.default_rng(0)
        self.stored = rows_of(stored, n, d, rng)
        X = self.stored if stored in ("dense", "float32") else self.stored.toarray()
        X = X.astype(float)
        self.X = np.column_stack([np.ones(n), X]) if augment else X
        self.matrix = as_matrix(self.stored, augment)
        self.name, self.activation, self.linear, d = name, activation, linear, self.X.shape[1]
        if name in LABELED:
            self.Y = rng.integers(0, m, (n, 1)).astype(float)
        elif LOSSES[name].target == "sign":
            self.Y = rng.choice([-1.0, 1.0], (n, m))
        else:
            self.Y = rng.normal(size=(n, m))
            if name == "poisson":
                self.Y = np.abs(self.Y)
        self.w = rng.random(n) * (rng.random(n) < 0.8) if weights else None
        self.H, self.V = 0.5 * rng.normal(size=(k, d)), 0.5 * rng.normal(size=(k, m))
        self.b, self.W = rng.normal(size=m), 0.5 * rng.normal(size=(d, m))
        self.objective = self.make(get_loss(name), n_threads)

    def make(self, loss, n_threads=1):
        return JointObjective(self.matrix, loss, self.Y, self.V.shape[1], self.w,
                              activation=self.activation, linear=self.linear,
                              n_threads=n_threads)  # fmt: skip

    @property
    def parameters(self):
        return [self.H, self.V, self.b, self.W] if self.linear else [self.H, self.V]

    def numpy(self):
        """Activations, outputs, value, gradient with respect to the outputs, loss curvature."""
        S = fast_activations(self.X, self.H, self.activation)
        O = S @ self.V + (self.b + self.X @ self.W if self.linear else 0)
        return S, O, *whole_matrix(self.name, self.Y, O, self.w)

    def numpy_gradients(self, D):
        Z, S, M = self.X @ self.H.T, self.numpy()[0], D @ self.V.T
        if self.activation == "squared":
            GH = 2 * (M * Z).T @ self.X
        else:
            GH = (M * Z).T @ self.X - (M.T @ self.X**2) * self.H
        return [GH, S.T @ D] + ([D.sum(0), self.X.T @ D] if self.linear else [])


def close(got, want, rtol=1e-10):
    assert got.shape == want.shape
    assert_allclose(got, want, rtol=rtol, atol=rtol * (1 + np.abs(want).max(initial=0)))


def check(case):
    """Value, gradients, outputs, D and the packed form against NumPy; inputs stay as they were."""
    objective, parameters = case.objective, case.parameters
    before = pickle.dumps([parameters, case.stored, case.Y, case.w])
    _, O, value, D, _ = case.numpy()
    memory = np.full(O.shape, np.nan)
    got, *gradients = objective.value_grad(*parameters, D=memory)
    assert_allclose(got, value, rtol=1e-11, atol=1e-13)
    close(memory, D)
    close(objective.outputs(*parameters), O, 1e-11)
    wanted = case.numpy_gradients(D)
    for a, want in zip(gradients, wanted, strict=False):
        close(a, want)
    assert gradients[len(wanted) :] == [None] * (4 - len(wanted))
    without = objective.value_grad(*parameters, basis=False)
    assert without[0] == got
    assert without[1] is None
    assert_array_equal(without[2], gradients[1])
    x = np.concatenate([a.ravel() for a in parameters])
    g = np.full_like(x, np.nan)
    assert objective.n_parameters(len(case.H)) == len(x)
    assert objective.value_grad_packed(x, len(case.H), g) == got
    assert_array_equal(g, np.concatenate([a.ravel() for a in gradients[: len(wanted)]]))
    assert pickle.dumps([parameters, case.stored, case.Y, case.w]) == before


@EVERY_LOSS
@BOTH
@EVERY_FORM
def test_value_and_gradients(name, activation, stored):
    for weights, augment, linear in [(False, False, False), (True, False, True),
                                     (True, True, False), (False, True, True)]:  # fmt: skip
        check(Case(name, stored, activation, weights=weights, augment=augment, linear=linear))


@EVERY_LOSS
@BOTH
@EVERY_FORM
@pytest.mark.parametrize("augment", [False, True])
def test_gradients_by_central_differences(name, activation, stored, augment):
    case = Case(name, stored, activation, n=12, d=4, k=2, m=2, linear=True, augment=augment,
                weights=augment)  # fmt: skip
    gradients = case.objective.value_grad(*case.parameters)[1:]
    for a, G in zip(case.parameters, gradients, strict=True):
        for at in np.ndindex(a.shape):
            here, values = a[at], []
            for step in (1e-5, -1e-5):
                a[at] = here + step
                values.append(case.objective.value_grad(*case.parameters)[0])
            a[at] = here
            assert_allclose(G[at], (values[0] - values[1]) / 2e-5, rtol=1e-5, atol=1e-5)


@BOTH
@EVERY_FORM
@pytest.mark.parametrize(
    ("n", "k", "m"),
    [(0, 2, 3), (1, 1, 1), (40, 0, 2), (40, 1, 4), (900, 37, 1), (901, 5, 7), (300, 16, 26)],
)
def test_shapes(activation, stored, n, k, m):
    for linear in (False, True):
        for name in ("multiclass_logistic", "squared"):
            check(Case(name, stored, activation, n=n, d=9, k=k, m=m, linear=linear))


@BOTH
@EVERY_FORM
@pytest.mark.usefixtures("all_threads")
def test_two_threads_agree_and_repeat_their_bits(activation, stored):
    """Enough rows for threads; for pairs, also enough features to be split between threads."""
    d = 40 if stored in ("dense", "float32") or stored.startswith("csr") else 2100
    options = {"n": 8001, "d": d, "k": 41, "m": 19, "linear": True, "augment": True}
    one = Case("squared", stored, activation, **options)
    two = Case("squared", stored, activation, n_threads=2, **options)
    want, got = one.objective.value_grad(*one.parameters), two.objective.value_grad(*two.parameters)
    for a, b in zip(want, got, strict=True):
        assert_allclose(b, a, rtol=1e-9, atol=1e-9 * (1 + np.abs(a).max()))
    again = two.make(get_loss("squared"), 2)
    for objective in (two.objective, again):
        for a, b in zip(objective.value_grad(*two.parameters), got, strict=True):
            assert_array_equal(a, b)
    curvatures = [case.objective.curvature(*case.parameters) for case in (one, two)]
    for a, b in zip(*curvatures, strict=True):
        assert_allclose(b, a, rtol=1e-9, atol=1e-9 * np.abs(a).max())


@pytest.mark.usefixtures("all_threads")
def test_sums_over_many_features_are_split_between_threads():
    cases = [Case("squared", "csr", "anova", n=200, d=2500, k=30, m=2, linear=True, n_threads=t)
             for t in (1, 2)]  # fmt: skip
    results = [case.objective.value_grad(*case.parameters) for case in cases]
    for a, b in zip(*results, strict=True):
        assert_allclose(b, a, rtol=1e-9, atol=1e-9 * np.abs(a).max())


@BOTH
@pytest.mark.parametrize("augment", [False, True])
def test_all_forms_of_the_same_rows_agree(activation, augment):
    rng = np.random.default_rng(0)
    pairs = rows_of("pairs of ones", 500, 20, rng)
    wide = csr_array(np.column_stack([pairs.toarray(), np.zeros(500)]))
    wide.resize(500, 21)
    Y, H, V = rng.normal(size=(500, 3)), rng.normal(size=(7, 20 + augment)), rng.normal(size=(7, 3))
    results = []
    for X in (pairs.toarray(), pairs.toarray().astype("f4"), pairs, pairs.astype("f4"), wide):
        objective = JointObjective(as_matrix(X, augment), get_loss("squared"), Y, 3,
                                   activation=activation)  # fmt: skip
        extra = np.zeros((7, X.shape[1] - 20))
        value, GH, GV, *_ = objective.value_grad(np.hstack([H, extra]), V)
        results.append((value, GH[:, : 20 + augment], GV))
    for got in results[1:]:
        for a, b in zip(results[0], got, strict=True):
            assert_allclose(b, a, rtol=1e-9, atol=1e-9 * np.abs(a).max())


class PlainLoss:
    """A user's loss: plain Python with `value_grad` alone."""

    def __init__(self, name):
        self.name = name

    def value_grad(self, Y, O, w=None):
        return whole_matrix(self.name, Y, O, w)[:2]


class Curved(PlainLoss):
    def curvature(self, Y, O, w=None):
        return whole_matrix(self.name, Y, O, w)[2]


class Bounded(PlainLoss):
    def __init__(self, name, bound):
        self.name, self.bound = name, bound

    def smoothness(self, n_outputs):
        return self.bound


@EVERY_LOSS
@BOTH
@pytest.mark.parametrize("stored", ["dense", "csr", "shuffled"])
def test_a_python_loss_gives_the_same(name, activation, stored):
    for linear in (False, True):
        case = Case(name, stored, activation, linear=linear)
        compiled = case.objective
        case.objective = case.make(Curved(name))
        check(case)
        for a, b in zip(case.objective.curvature(*case.parameters),
                        compiled.curvature(*case.parameters), strict=True):  # fmt: skip
            assert a is b is None or close(a, b, 1e-9) is None


def test_nan_in_gives_nan_out():
    for loss in (get_loss("squared"), PlainLoss("squared")):
        case = Case("squared", linear=True)
        case.V[0, 0] = np.nan
        D = np.zeros(case.Y.shape)
        value, *gradients = case.make(loss).value_grad(*case.parameters, D=D)
        assert np.isnan(value)
        assert all(np.isnan(G).any() for G in [D, *gradients])


@EVERY_LOSS
@BOTH
@EVERY_FORM
@pytest.mark.parametrize("augment", [False, True])
def test_curvature(name, activation, stored, augment):
    """Against diagonals of Gauss-Newton matrices, one parameter's Jacobian at a time."""
    case = Case(name, stored, activation, n=25, d=5, k=4, m=3, linear=True, augment=augment)
    S, _, _, _, C = case.numpy()
    got = case.objective.curvature(*case.parameters)
    Z, (k, d) = case.X @ case.H.T, case.H.shape
    basis = np.empty((k, d))
    for r, j in np.ndindex(k, d):
        x, z = case.X[:, j], Z[:, r]
        slope = 2 * z * x if activation == "squared" else x * (z - x * case.H[r, j])
        basis[r, j] = (C * np.outer(slope, case.V[r]) ** 2).sum()
    close(got.basis, basis, 1e-9)
    assert got.basis.min() >= 0
    close(got.output, np.einsum("ir,i,is->rs", S, C.mean(1), S))
    close(got.intercept, C.sum(0))
    linear = [[(C[:, c] * case.X[:, j] ** 2).sum() for c in range(3)] for j in range(d)]
    close(got.linear, np.array(linear))


@BOTH
@EVERY_FORM
def test_curvature_of_any_shape(activation, stored):
    for n, k, m in [(0, 2, 3), (1, 1, 1), (30, 0, 2), (700, 37, 1)]:
        for linear in (False, True):
            case = Case("binary_logistic", stored, activation, n=n, k=k, m=m, linear=linear)
            got = case.objective.curvature(*case.parameters)
            S, _, _, _, C = case.numpy()
            close(got.output, (S * C.mean(1)[:, None]).T @ S)
            assert got.basis.shape == case.H.shape
            assert (got.linear is None) == (got.intercept is None) == (not linear)
            if linear:
                close(got.linear, (case.X**2).T @ C)


def test_curvature_without_that_of_the_loss():
    case = Case("squared", weights=False)
    want = case.objective.curvature(*case.parameters)  # of ones
    for loss, scale in [(PlainLoss("squared"), 1), (Bounded("squared", 0.25), 0.25),
                        (Bounded("squared", np.inf), 1)]:  # fmt: skip
        got = case.make(loss).curvature(*case.parameters)
        assert_allclose(got.basis, scale * want.basis)
        assert_allclose(got.output, scale * want.output)


def test_one_object_in_many_python_threads():
    case = Case("squared", "pairs", "anova", n=2000, d=50, k=20, linear=True)
    want, wrong = case.objective.value_grad(*case.parameters), []

    def run():
        for _ in range(20):
            got = case.objective.value_grad(*case.parameters)
            wrong.extend(1 for a, b in zip(got, want, strict=True) if not np.array_equal(a, b))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer signal")
def test_a_long_pass_can_be_interrupted():
    """The handler runs during the pass, not after it."""
    case = Case("squared", "dense", n=30_000, d=300, k=300, m=2, weights=False)
    heard = []
    previous = signal.signal(signal.SIGALRM, lambda *_: heard.append(time.perf_counter()))
    signal.setitimer(signal.ITIMER_REAL, 0.02)
    try:
        with one_blas_thread():
            case.objective.value_grad(case.H, case.V)
            ended = time.perf_counter()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert len(heard) == 1
    assert ended - heard[0] > 0.02


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.usefixtures("all_threads")
def test_a_forked_child_continues():
    case = Case("squared", "dense", n=8000, d=50, k=40, n_threads=2)
    value = case.objective.value_grad(case.H, case.V)[0]
    child = os.fork()
    if child == 0:
        os._exit(0 if case.objective.value_grad(case.H, case.V)[0] == value else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_attributes():
    case = Case("multiclass_logistic", activation="anova", linear=True, augment=True, n_threads=2)
    objective = case.objective
    assert (objective.n, objective.d, objective.m) == (30, 7, 3)
    assert objective.activation == "anova"
    assert objective.linear is True
    assert objective.X is case.matrix
    assert objective.loss == get_loss("multiclass_logistic")
    assert_array_equal(objective.targets, case.Y)
    assert_array_equal(objective.w_array, case.w)
    assert Case(weights=False).objective.w_array is None
    assert not np.may_share_memory(objective.targets, case.Y)  # codes are indices


def test_made_once_and_never_pickled():
    case = Case()
    with pytest.raises(TypeError, match="second time"):
        case.objective.__init__(case.matrix, get_loss("binary_logistic"), case.Y, 3)
    with pytest.raises(TypeError):
        pickle.dumps(case.objective)
    blank = JointObjective.__new__(JointObjective)
    for call in (lambda: blank.value_grad(case.H, case.V), lambda: blank.outputs(case.H, case.V),
                 lambda: blank.curvature(case.H, case.V), lambda: blank.n_parameters(1),
                 lambda: blank.value_grad_packed(case.b, 1, case.b), lambda: blank.activation,
                 lambda: blank.targets, lambda: blank.w_array):  # fmt: skip
        with pytest.raises(TypeError, match="__init__ was not called"):
            call()


def test_bad_input():
    X, loss, Y = as_matrix(np.ones((4, 2))), get_loss("squared"), np.ones((4, 3))
    H, V, b, W = np.ones((5, 2)), np.ones((5, 3)), np.ones(3), np.ones((2, 3))
    plain, linear = JointObjective(X, loss, Y, 3), JointObjective(X, loss, Y, 3, linear=True)
    x, g = np.ones((2, 25))
    frozen = x.copy()
    frozen.flags.writeable = False
    plain.value_grad_packed(frozen, 5, g)
    four = JointObjective(as_matrix(np.ones((1, 3))), get_loss("squared"), np.ones((1, 1)), 1)
    labels = np.full((4, 1), 3.0)
    for error, says, call in [
        (TypeError, "X", lambda: JointObjective(np.ones((4, 2)), loss, Y, 3)),
        (TypeError, "X", lambda: JointObjective(None, loss, Y, 3)),
        (ValueError, "n_outputs must be at least 1", lambda: JointObjective(X, loss, Y, 0)),
        (ValueError, "activation must be", lambda: JointObjective(X, loss, Y, 3, activation="a")),
        (ValueError, "n_threads", lambda: JointObjective(X, loss, Y, 3, n_threads=0)),
        (ValueError, "Y must have shape", lambda: JointObjective(X, loss, Y[:3], 3)),
        (ValueError, "Y must have shape", lambda: JointObjective(X, loss, Y[:, :2], 3)),
        (ValueError, "Y must have shape", lambda: JointObjective(X, PlainLoss("a"), Y[1:], 3)),
        (ValueError, "w must have shape", lambda: JointObjective(X, loss, Y, 3, np.ones(3))),
        (ValueError, "w must be non-neg", lambda: JointObjective(X, loss, Y, 3, -np.ones(4))),
        (ValueError, "not a class code",
         lambda: JointObjective(X, get_loss("multiclass_logistic"), labels, 3)),
        (ValueError, "H must have shape", lambda: plain.value_grad(H[:, :1], V)),
        (ValueError, "V must have shape", lambda: plain.value_grad(H, V[:1])),
        (ValueError, "V must have shape", lambda: plain.outputs(H, V[:, :1])),
        (TypeError, "H must hold real", lambda: plain.value_grad(H.astype(complex), V)),
        (ValueError, "b must be None", lambda: plain.value_grad(H, V, b)),
        (ValueError, "W must be None", lambda: plain.curvature(H, V, None, W)),
        (ValueError, "b must be given", lambda: linear.value_grad(H, V)),
        (ValueError, "W must be given", lambda: linear.outputs(H, V, b)),
        (ValueError, "b must have shape", lambda: linear.value_grad(H, V, b[:2], W)),
        (ValueError, "W must have shape", lambda: linear.value_grad(H, V, b, W.T)),
        (ValueError, "D must be a float64", lambda: plain.value_grad(H, V, D=np.ones((3, 3)))),
        (ValueError, "D must be C-cont", lambda: plain.value_grad(H, V, D=np.ones((3, 4)).T)),
        (ValueError, "D must not share", lambda: plain.value_grad(H, V, D=Y)),
        (ValueError, "k must be at least 0", lambda: plain.value_grad_packed(x, -1, g)),
        (ValueError, "x must have shape", lambda: plain.value_grad_packed(x[:-1], 5, g)),
        (ValueError, "g must have shape", lambda: plain.value_grad_packed(x, 5, g[:-1])),
        (ValueError, "x must have shape", lambda: plain.value_grad_packed(x, 4, g)),
        (ValueError, "x must have shape", lambda: four.value_grad_packed(x[:0], 2**62, g[:0])),
        (ValueError, "x must be", lambda: plain.value_grad_packed(x.astype("f4"), 5, g)),
        (ValueError, "g must be", lambda: plain.value_grad_packed(x, 5, g.astype("f4"))),
        (ValueError, "g must be", lambda: plain.value_grad_packed(frozen, 5, frozen.copy()[::-1])),
        (ValueError, "g must be", lambda: plain.value_grad_packed(x, 5, frozen)),
        (ValueError, "x must be", lambda: plain.value_grad_packed(x.tolist(), 5, g)),
        (ValueError, "x must be", lambda: plain.value_grad_packed(None, 5, g)),
        (ValueError, "g must be", lambda: plain.value_grad_packed(x, 5, None)),
        (ValueError, "g must not overlap", lambda: plain.value_grad_packed(x, 5, x)),
    ]:  # fmt: skip
        with pytest.raises(error, match=says):
            call()


def test_examples_in_docstrings():
    assert doctest.testmod(module).failed == 0
