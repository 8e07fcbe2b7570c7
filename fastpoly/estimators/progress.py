"""What a fit shows while it runs: a bar, a log, and one warning if it is slow for its size."""

import logging
from collections.abc import Callable
from time import monotonic
from typing import Self

from tqdm.auto import tqdm

from fastpoly.estimators.advice import warn
from fastpoly.state import State

logger = logging.getLogger("fastpoly")

# Seconds after which a fit warns that it is slow for its size: sooner would be noise.
SLOW_SECONDS = 5.0


class Progress:
    """Shows rounds: nothing for verbose=0, a tqdm bar for 1, else one log line per round."""

    def __init__(self, verbose: int, n_components: int) -> None:
        self.verbose = int(verbose)
        self.bar = tqdm(total=n_components, unit="basis") if self.verbose == 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            if exception == (None, None, None):
                self.bar.total = self.bar.n  # it needed no more basis vectors
            self.bar.close()

    def show(self, state: State, score: float | None) -> None:
        """Show a round, and its score if there is one."""
        if self.verbose == 0:
            return
        numbers = {"objective": f"{state.objective:.5g}", "violation": f"{state.violation:.3g}"}
        if score is not None:
            numbers["validation"] = f"{score:.4f}"
        if self.bar is not None:
            self.bar.set_postfix(numbers, refresh=False)
            self.bar.update(state.n_components - self.bar.n)
            return
        shown = ", ".join(f"{name} {value}" for name, value in numbers.items())
        logger.info("round %d: %d basis vectors, %s", state.n_iter, state.n_components, shown)
        if state.stop:
            logger.info("stopped: %s", state.stop)


class SlowFit:
    """Warns once, after a round, that a fit is slow for its size, and why.

    Parameters
    ----------
    reason : callable
        Takes the last state and the first one; returns the reason with its cure, or None.
    """

    def __init__(self, reason: Callable[[State, State], str | None]) -> None:
        self.reason, self.warned = reason, False
        self.first: State | None = None
        self.restart()

    def restart(self) -> None:
        """Count the seconds from now."""
        self.begun = monotonic()

    def after(self, state: State) -> None:
        """Warn if it is time to."""
        self.first = self.first or state
        if state.stop or self.warned or monotonic() - self.begun < SLOW_SECONDS:
            return
        reason = self.reason(state, self.first)
        if reason:
            self.warned = True
            warn(f"the fit has taken more than {SLOW_SECONDS:g} seconds so far: {reason}")
