"""Compiled kernels. Every name here is also importable from Cython (`cimport`)."""
