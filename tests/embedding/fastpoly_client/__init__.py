"""A loss, a penalty and operators for fastpoly, in Cython."""
