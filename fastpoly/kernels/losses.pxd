# `from fastpoly.kernels.losses cimport Loss` is all that a package with a loss of its own needs.
from fastpoly.kernels.loss cimport Loss
