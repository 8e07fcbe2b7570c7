"""Algorithm 1: fully corrective conditional gradient over an infinite set of basis vectors.

    repeat:  D = gradients of the loss with respect to the outputs
             h = the basis vector with the largest dual norm of (h' Gamma_c h)_c    (selection)
             append h to H, refit V (or V and H), drop the rows of V that became zero

`conditional_gradient` is a generator of `State`s. Each state is a usable model with its
certificate, computed at that very point, and each can be the start of another run.
"""

from collections.abc import Iterator
from typing import Any

from numpy.typing import ArrayLike

from fastpoly.iteration import Run
from fastpoly.kernels.checks import as_count, as_positive, as_seed, as_weights
from fastpoly.kernels.penalties import get_penalty
from fastpoly.refit.output import OutputRefit, check_choice, check_strength, encode, resolve_loss
from fastpoly.rows.design import Design, check_design, check_scale
from fastpoly.selection import METHODS
from fastpoly.state import State, check_start

__all__ = ["State", "conditional_gradient"]

REFITS = ("output", "full", None)


def conditional_gradient(
    design: Design,
    y: ArrayLike,
    *,
    loss: Any = "logistic",
    penalty: Any = "l1/l2",
    alpha: float | None = None,
    tau: float | None = None,
    n_components: int = 50,
    refit: str | None = "output",
    alpha_linear: float = 1.0,
    solver: str = "auto",
    max_iter: int = 1000,
    tol: float = 1e-3,
    selection: str = "refine",
    sample_weight: ArrayLike | None = None,
    n_outputs: int | None = None,
    start: State | None = None,
    memory: float = 1e9,
    random_state: object = None,
) -> Iterator[State]:
    """Run Algorithm 1, one basis vector an iteration.

    Parameters
    ----------
    design : Design
        The data, with activation and lower-order terms.
    y : array-like
        Targets, as the loss takes them: class codes 0..m-1 (n,), signs or numbers (n, m).
    loss : str or object
        "logistic", "smoothed_hinge" or "squared_hinge" (multi-class for class codes, binary for
        signs), "squared", any name of `fastpoly.kernels.losses.LOSSES`, or a loss object.
    penalty : {"l1/l2", "l1", "l1/linf"} or a penalty object
    alpha : float, optional
        Penalised form, loss + alpha Omega(V); 1.0 when neither alpha nor tau is given. The loss is
        a sum over the rows, and alpha is on that scale.
    tau : float, optional
        Constrained form, Omega(V) <= tau.
    n_components : int
        Stop at this number of basis vectors.
    refit : {"output", "full", None}
        After each added basis vector: fit V again (convex), fit V and H (the objective can only
        improve on that of the output layer), or only choose the step towards the new vector (then
        explicit lower-order terms stay as they are without basis vectors).
    alpha_linear : float
        Ridge penalty of the linear weights, with fit_lower="explicit".
    solver : {"auto", "fista", "newton"}
    max_iter : int
        Iterations of one refit at most.
    tol : float
        Relative tolerance of the stopping rule: optimal when the violation is at most
        (1 + tol) alpha (constrained: what it adds to the gap at most tol times the objective) and
        the gap of the refit at most tol times the objective. (An objective below a millionth of
        the loss without a model, a perfect fit, counts as that.)
    selection : str
        A method of `select_basis`.
    sample_weight : array-like, (n,), optional
    n_outputs : int, optional
        Number of classes, where y does not show it.
    start : State, optional
        Go on from here. A run that is cut off and started again from its last state ends with the
        same model, bit for bit. A state of another problem (alpha, tau, data, penalty) is
        refitted first.
    memory : float
        Bytes that stored activations (n x k) may take (twice that while one is added); beyond it
        they are recomputed in every pass. What Newton's method stores beside them, second
        derivatives of every row or [1, X], may take as much, and 256 MB at most.
    random_state : int, Generator or None

    Yields
    ------
    State
        The first one is the model without basis vectors (or the refitted start); then one an
        iteration. The last one has `stop` set; "no progress" comes with the model of the state
        before. Starting from a state where nothing is left to do gives that state again.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly import Design, conditional_gradient
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((200, 5))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)
    >>> design = Design(X, "anova")
    >>> for state in conditional_gradient(design, y, alpha=2.0, random_state=0):
    ...     pass
    >>> state.stop
    'optimal'
    >>> O = design.outputs(state.H, state.V)
    >>> bool((O.argmax(axis=1) == y).mean() > 0.95)
    True
    """
    check_design(design)
    check_scale(design)
    check_choice(refit, "refit", REFITS)
    check_choice(selection, "selection", METHODS)
    n_components = as_count(n_components, "n_components")
    alpha, tau = check_strength(alpha, tau)
    tol = as_positive(tol, "tol")
    loss, penalty = resolve_loss(loss, y), get_penalty(penalty)
    Y, m = encode(loss, y, n_outputs, design.n_samples)
    w = as_weights(sample_weight, "sample_weight", design.n_samples, some=True)
    memory = as_positive(memory, "memory", or_zero=True)
    fitter = OutputRefit(loss, penalty, Y, m, w, alpha, tau, alpha_linear, solver, memory)
    if start is not None:
        check_start(start, design, m)
    seed = start.seed if start is not None else as_seed(random_state)
    run = Run(design, fitter, refit, as_count(max_iter, "max_iter"), tol, selection, memory, seed)
    return run.states(n_components, start)
