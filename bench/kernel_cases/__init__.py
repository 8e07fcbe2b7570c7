"""The cases of the kernel benchmark: each kernel against the two lines that compute the same."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Case:
    """One kernel at one shape.

    Attributes
    ----------
    name, shape : str
    run : callable
        The kernel, given a number of threads.
    against : dict
        Label -> rival callable.
    target : dict
        Label -> the wanted speedup on one thread, if there is a target.
    bytes, flops : float
        What any implementation must move and compute, for the roofline.
    rtol : float or None
        Results agree to this share of the largest entry; None if they are not the same numbers.
    threaded : bool
        Whether the kernel can use a second thread.
    note : callable or None
        Makes an explanation, which is printed below the table.
    """

    name: str
    shape: str
    run: Callable[[int], object]
    against: dict[str, Callable[[], object]]
    target: dict[str, float] = field(default_factory=dict)
    bytes: float = 0.0
    flops: float = 0.0
    rtol: float | None = 1e-9
    threaded: bool = True
    note: Callable[[], str] | None = None
