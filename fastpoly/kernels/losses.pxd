# `from fastpoly.kernels.losses cimport Loss` is all that a package with its own loss needs.
from fastpoly.kernels.loss cimport Loss
