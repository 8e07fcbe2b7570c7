"""What must never crash: objects made wrongly, memory changed after a check, forks."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from subprocesses import run_python
from threadpoolctl import threadpool_info

from fastpoly import Design, conditional_gradient
from fastpoly.kernels.blas_threads import one_blas_thread
from fastpoly.kernels.explicit import ExplicitGamma, make_gamma
from fastpoly.kernels.features import DenseFeatures, make_features
from fastpoly.kernels.gamma import DenseGamma
from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.losses import MulticlassLogistic, get_loss
from fastpoly.kernels.matrix import as_matrix

RNG = np.random.default_rng(0)


def labeled(n=50, k=3, m=4):
    A, Y = RNG.random((n, k)), RNG.integers(0, m, (n, 1)).astype(float)
    return A, Y, RNG.random((k, m))


def test_an_objective_works_in_a_forked_child():
    code = """
import os
from pathlib import Path

import numpy as np
from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.losses import get_loss
from fastpoly.kernels.matrix import as_matrix
A = np.ones((40000, 8))
objective = JointObjective(
    as_matrix(A), get_loss("squared"), np.ones((40000, 2)), 2, n_threads=2
)
before = objective.value_grad(np.eye(8), np.ones((8, 2)))[0]
if os.fork() == 0:
    same = objective.value_grad(np.eye(8), np.ones((8, 2)))[0] == before
    os._exit(0 if same else 3)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    assert run_python(code).strip().endswith("0")


def test_class_codes_cannot_change_behind_an_objective():
    A, Y, V = labeled()
    objective = JointObjective(as_matrix(A), get_loss("multiclass_logistic"), Y, 4)
    H = np.eye(len(V))
    value = objective.value_grad(H, V)[0]
    Y[:] = 1e9
    assert objective.value_grad(H, V)[0] == value


def test_a_multiclass_loss_checks_codes_whatever_its_target_says():
    class Renamed(MulticlassLogistic):
        target = "real"

    with pytest.raises(ValueError, match="not a class code"):
        Renamed().value_grad(np.full((2, 1), 1e9), np.zeros((2, 3)))
    with pytest.raises(ValueError, match="not a class code"):
        MulticlassLogistic().value_grad([[0.7]], np.zeros((1, 3)))


def test_indices_cannot_change_behind_a_design():
    X = sp.random_array((30, 20), density=0.2, rng=RNG, format="csr")
    design, D = Design(X), RNG.random((30, 2))
    before = design.gamma(D).forms(np.ones(20))
    X.indices[:] = 2**30
    np.testing.assert_array_equal(design.gamma(D).forms(np.ones(20)), before)


def test_gradients_may_not_be_written_over_the_inputs():
    A, _, V = labeled(m=1)
    Y = RNG.random((50, 1))
    objective = JointObjective(as_matrix(A), get_loss("squared"), Y, 1)
    with pytest.raises(ValueError, match="share memory"):
        objective.value_grad(np.eye(len(V)), V, D=objective.targets)


def test_objects_that_were_not_made_or_made_twice():
    for what in (
        lambda: ExplicitGamma.__new__(ExplicitGamma).dense(),
        lambda: ExplicitGamma.__new__(ExplicitGamma).blocks_array(),
        lambda: DenseFeatures.__new__(DenseFeatures).basis_grad(np.zeros((0, 0))),
        lambda: JointObjective.__new__(JointObjective).targets,
        lambda: make_features(as_matrix(np.eye(3)), np.eye(3)).__init__(
            as_matrix(np.eye(2)), [[1.0, 2]]
        ),
        lambda: JointObjective(None, get_loss("squared"), np.ones((1, 1)), 1),
    ):
        with pytest.raises((TypeError, ValueError)):
            what()


def test_few_rows_are_not_worth_explicit_matrices():
    assert isinstance(make_gamma(as_matrix(RNG.random((30, 120))), np.ones((30, 2))), DenseGamma)
    many = make_gamma(as_matrix(RNG.random((3000, 20))), np.ones((3000, 2)))
    assert isinstance(many, ExplicitGamma)


def blas_threads():
    return [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]


@pytest.mark.usefixtures("two_blas_threads")
def test_blas_threads_come_back_whatever_the_order():
    before = blas_threads()
    assert set(before) == {2}
    first, second = one_blas_thread(), one_blas_thread()
    first.__enter__()
    second.__enter__()
    assert set(blas_threads()) == {1}
    first.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before


def test_the_first_mistake_of_a_new_user():
    with pytest.raises(TypeError, match=r"Design\(X\)"):
        conditional_gradient(np.ones((3, 2)), [0, 1, 0])


def test_a_run_ends_when_nothing_is_gained():
    X = RNG.standard_normal((200, 3))
    y = RNG.integers(0, 3, 200)
    states = list(conditional_gradient(Design(X), y, alpha=1.0, tol=1e-4, random_state=0))
    assert states[-1].stop in ("optimal", "no progress")
    assert len(states) < 150


def test_optimal_means_that_the_refit_is_accurate_too():
    X = 3 * np.random.default_rng(0).standard_normal((200, 6))
    Y = np.where(X[:, :1] > 5, 1.0, -1.0)  # nearly separable: far from the start
    design = Design(X, fit_lower="explicit")
    options = dict(loss="binary_logistic", alpha=1e4)
    *_, exact = conditional_gradient(design, Y, tol=1e-8, max_iter=5000, **options)
    *_, short = conditional_gradient(design, Y, max_iter=1, **options)
    assert exact.stop == "optimal"
    assert short.stop == "max_iter"
    assert short.objective > exact.objective * 1.01
    *_, tau = conditional_gradient(design, Y, loss="binary_logistic", tau=1e-6, max_iter=1)
    assert tau.objective - exact.objective <= tau.gap


def test_results_are_not_written_over_the_data():
    X = np.ones((4, 4))
    with pytest.raises(ValueError, match="out must not overlap"):
        make_features(as_matrix(X), np.eye(4)).activations(out=X)


def forged(kind):
    X = getattr(sp, f"{kind}_array")(np.eye(3))
    if kind == "coo":
        X.coords = X.coords[:1]
    elif kind == "lil":
        X.rows[0] = [2**33]
    else:
        X.offsets = np.array([2**33])
    return X


@pytest.mark.parametrize("kind", ["coo", "lil", "dia"])
def test_forged_arrays_of_other_formats(kind):
    with pytest.raises(ValueError, match="rebuild"):
        as_matrix(forged(kind))


def misdirected(kind):
    """Sparse data with indices far out of range, which scipy does not check."""
    X = sp.random_array((60, 20), density=0.3, rng=np.random.default_rng(0), format="csr")
    if kind == "indices":
        X.indices[5] = 2**30
    elif kind == "indptr":
        X.indptr[5] = 2**30
    elif kind == "coo":
        X = X.tocoo()
        X.coords = (X.coords[0] + 2**30, X.coords[1])
    elif kind == "lil":
        X = X.tolil()
        X.rows[0] = [2**33] * len(X.rows[0])
    return X


def test_estimators_follow_no_forged_index():
    """In a separate process, because without the check it ends with a segmentation fault."""
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from pathlib import Path

import numpy as np
import fastpoly
from test_guards import misdirected
X, y = misdirected("none"), np.arange(60) % 2
model = fastpoly.PolynomialNetworkClassifier(alpha=1.0, n_components=1).fit(X, y)
early = fastpoly.PolynomialNetworkClassifier(alpha=1.0, n_components=1, early_stopping=True)
search = fastpoly.PathSearchCV(model, alphas=[1.0], cv=2)
for kind in ("indices", "indptr", "coo", "lil"):
    labels = misdirected(kind)
    if kind != "lil":
        labels.data[:] = 1
    for call in (
        lambda X: model.fit(X, y),
        lambda X: model.predict(X),
        lambda X: search.fit(X, y),
        lambda X: model.fit(misdirected("none"), labels),
        lambda X: early.fit(X, y),
    ):
        try:
            call(misdirected(kind))
        except ValueError as error:
            assert "X" in str(error), error
        else:
            raise AssertionError("accepted " + kind)
    print(kind, flush=True)
"""
    assert run_python(code).split() == ["indices", "indptr", "coo", "lil"]


@pytest.mark.parametrize("make", [sp.csr_array, sp.coo_array])
def test_sparse_data_of_one_dimension(make):
    with pytest.raises(ValueError, match="X must be 2-D"):
        as_matrix(make(np.ones(3)))
