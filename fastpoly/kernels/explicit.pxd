from fastpoly.kernels.gamma cimport Gamma


cdef class ExplicitGamma(Gamma):
    cdef double[:, :, ::1] blocks    # (d, d, width), outputs last
