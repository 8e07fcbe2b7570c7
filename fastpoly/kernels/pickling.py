"""Pickling and copying of losses and penalties; no other compiled class can be pickled."""

import copyreg
from typing import Any


def reduce_object(instance: Any, base: type) -> tuple[Any, ...]:
    """The result of `__reduce__` for an instance of a subclass of `base`, which has no C state.

    Attributes of Python subclasses are kept, without calling their `__init__`. A compiled subclass
    with C attributes is refused, because they cannot be read from here.

    Parameters
    ----------
    instance : object
    base : type
        The compiled class whose `__reduce__` this is.

    Examples
    --------
    >>> from fastpoly.kernels.losses import Loss, Squared
    >>> from fastpoly.kernels.pickling import reduce_object
    >>> create, arguments, state = reduce_object(Squared(), Loss)
    >>> create(*arguments)
    Squared()
    """
    for cls in type(instance).__mro__:
        if "__pyx_vtable__" in vars(cls) and cls.__basicsize__ > base.__basicsize__:
            raise TypeError(
                f"cannot pickle or copy {type(instance).__name__}: {cls.__name__} has C attributes "
                "and must define __reduce__, e.g. as (type(self), (arguments of __init__,))"
            )
    return copyreg.__newobj__, (type(instance),), instance.__getstate__()
