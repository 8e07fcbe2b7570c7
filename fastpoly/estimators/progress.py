"""Progress of a fit: silent, a bar, or lines of a log."""

import logging
from typing import Self

from tqdm.auto import tqdm

from fastpoly.state import State

logger = logging.getLogger("fastpoly")


class Progress:
    """verbose=0: nothing; 1: a tqdm bar; 2 or more: one line a round through `logging`."""

    def __init__(self, verbose: int, n_components: int) -> None:
        self.verbose = int(verbose)
        self.bar = tqdm(total=n_components, unit="basis") if self.verbose == 1 else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.bar is not None:
            self.bar.close()

    def show(self, state: State, score: float | None) -> None:
        """Tell of a round, with its validation score if there is one."""
        if self.verbose == 0:
            return
        numbers = {"objective": f"{state.objective:.5g}", "violation": f"{state.violation:.3g}"}
        if score is not None:
            numbers["validation"] = f"{score:.4f}"
        if self.bar is not None:
            self.bar.set_postfix(numbers, refresh=False)
            self.bar.update(state.n_components - self.bar.n)
            return
        told = ", ".join(f"{name} {value}" for name, value in numbers.items())
        logger.info("round %d: %d basis vectors, %s", state.n_iter, state.n_components, told)
        if state.stop:
            logger.info("stopped: %s", state.stop)
