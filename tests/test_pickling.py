"""Pickles and copies: of losses, penalties and designs, and of no other compiled object."""

import copy
import importlib
import pickle
import pkgutil

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

import fastpoly.kernels
from fastpoly import Design
from fastpoly.kernels.explicit import ExplicitGamma, make_gamma
from fastpoly.kernels.features import make_features
from fastpoly.kernels.gamma import CsrGamma, DenseGamma
from fastpoly.kernels.joint import JointObjective
from fastpoly.kernels.linear import LinearTerms
from fastpoly.kernels.losses import LOSSES, Loss, Squared
from fastpoly.kernels.matrix import as_matrix
from fastpoly.kernels.penalties import L1, PENALTIES

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
ROUND_TRIPS = [copy.copy, copy.deepcopy] + [
    lambda a, protocol=protocol: pickle.loads(pickle.dumps(a, protocol)) for protocol in PROTOCOLS
]
X = np.eye(3)
M = as_matrix(X)

OPAQUE = {
    "DenseMatrix": M,
    "CsrMatrix": as_matrix(sp.csr_array(X)),
    "LinearTerms": LinearTerms(M),
    "DenseFeatures": make_features(M, X, "squared"),
    "CsrFeatures": make_features(as_matrix(sp.csr_array(X)), X, "anova"),
    "ExplicitGamma": ExplicitGamma(X[None]),
    "DenseGamma": DenseGamma(M, X),
    "CsrGamma": CsrGamma(as_matrix(sp.csr_array(X)), X),
    "made": make_gamma(M, X),
    "JointObjective": JointObjective(M, Squared(), X, 3),
}


def test_no_kernel_class_is_pickled_by_generated_code():
    names = [module.name for module in pkgutil.iter_modules(fastpoly.kernels.__path__)]
    classes = {
        value
        for name in names
        for value in vars(importlib.import_module(f"fastpoly.kernels.{name}")).values()
        if isinstance(value, type) and value.__module__.startswith("fastpoly.kernels.")
    }
    assert {Loss, L1, JointObjective, type(M)} <= classes
    for cls in classes:
        assert not hasattr(cls, "__setstate_cython__"), cls
        assert not hasattr(cls, "__reduce_cython__"), cls


@pytest.mark.parametrize("name", OPAQUE)
def test_what_holds_pointers_is_refused(name):
    for trip in ROUND_TRIPS:
        with pytest.raises(TypeError):
            trip(OPAQUE[name])


class Tilted(Squared):
    """A loss with a parameter, in Python."""

    def __init__(self, slope):
        self.slope = slope


class Slotted(L1):
    __slots__ = ("slope",)

    def __init__(self, slope):
        self.slope = slope


@pytest.mark.parametrize("trip", ROUND_TRIPS)
def test_losses_and_penalties(trip):
    for cls in [*LOSSES.values(), *PENALTIES.values()]:
        again = trip(cls())
        assert type(again) is cls
        assert again == cls()
    assert trip(Tilted(0.5)).slope == 0.5
    assert trip(Tilted(0.5)).value([[1.0]], [[4.0]]) == 4.5
    assert trip(Slotted(0.5)).slope == 0.5


@pytest.mark.parametrize("trip", ROUND_TRIPS)
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("fit_lower", [None, "augment", "explicit"])
def test_designs(trip, form, dtype, fit_lower):
    rng = np.random.default_rng(0)
    X = form((rng.standard_normal((20, 4)) * (rng.random((20, 4)) < 0.5)).astype(dtype))
    design = Design(X, "anova", fit_lower=fit_lower, n_threads=2)
    again = trip(design)
    assert (again.activation, again.fit_lower) == ("anova", fit_lower)
    assert again.n_threads == design.n_threads
    assert (again.n_samples, again.n_features) == (design.n_samples, design.n_features)
    assert again.matrix.single == (dtype == np.float32)
    assert again.matrix.sparse == (form is not np.asarray)
    H, V = rng.standard_normal((3, design.n_features)), rng.standard_normal((3, 2))
    assert_array_equal(again.outputs(H, V), design.outputs(H, V))
