"""The models after each step of training, each basis vector stored once."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastpoly.state import Model, State
from fastpoly.storage.state_file import array

Floats = NDArray[np.float64]

# Numbers of a State that the history keeps.
RECORDED = (
    "objective", "loss", "penalty", "violation", "violation_bound", "gap", "gap_found",
    "n_components", "alpha",
)  # fmt: skip


class Stage(NamedTuple):
    """The model after one step: `rows` are the positions of its basis vectors in the pool."""

    rows: NDArray[np.intp]
    V: Floats
    intercept: Floats
    linear: Floats | None


class Stages:
    """A sequence of models that share a pool of basis vectors.

    An output refit does not change the other basis vectors or their order, so k rounds need k
    vectors, not k (k + 1) / 2. The joint descent moves them all, but it has few rounds.
    """

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features
        self.pool: list[Floats] = []
        self.stages: list[Stage] = []
        self.numbers: list[tuple[float, ...]] = []

    def append(self, state: State, model: Model) -> None:
        """Add the model of a state, in the units that users see, and the state's numbers."""
        # Kept rows are found among those of the stage before, in one sweep; the others are new.
        known = iter(self.stages[-1].rows if self.stages else ())
        rows = []
        for h in model.H:
            row = next((r for r in known if np.array_equal(self.pool[r], h)), None)
            if row is None:
                row = len(self.pool)
                self.pool.append(h.copy())
            rows.append(row)
        indices = np.array(rows, dtype=np.intp)
        stage = Stage(indices, model.V, model.intercept, model.linear)
        recorded = [getattr(state, name) for name in RECORDED]
        recorded = [np.nan if number is None else number for number in recorded]  # alpha, with tau
        self.numbers.append((*recorded, sum(state.timings.values())))
        self.stages.append(stage)

    def history(self) -> dict[str, NDArray]:
        """The recorded numbers: one array per name, with one entry per stage."""
        names = (*RECORDED, "seconds")
        columns = dict(zip(names, map(np.array, zip(*self.numbers, strict=True)), strict=True))
        columns["n_components"] = columns["n_components"].astype(np.int64)
        return columns

    def up_to(self, last: int) -> "Stages":
        """The first `last` + 1 stages."""
        shorter = Stages(self.n_features)
        shorter.stages = self.stages[: last + 1]
        used = 1 + max((int(s.rows.max(initial=-1)) for s in shorter.stages), default=-1)
        shorter.pool = self.pool[:used]
        shorter.numbers = self.numbers[: last + 1]
        return shorter

    def sizes(self) -> list[int]:
        """Number of basis vectors of every stage."""
        return [len(stage.V) for stage in self.stages]

    def __len__(self) -> int:
        return len(self.stages)

    def __getitem__(self, i: int) -> Model:
        """The model of stage i."""
        rows, V, intercept, linear = self.stages[i]
        H = np.empty((len(rows), self.n_features))
        for r, row in enumerate(rows):
            H[r] = self.pool[row]
        return Model(H, V, intercept, linear)

    def __iter__(self) -> Iterator[Model]:
        return (self[i] for i in range(len(self)))


def stage_arrays(stages: Stages) -> dict[str, NDArray]:
    """The arrays that stand for stages in a file."""
    rows, V, intercept, linear = zip(*stages.stages, strict=True)
    arrays = {
        "stages.pool": np.reshape(stages.pool, (-1, stages.n_features)).astype(np.float64),
        "stages.sizes": np.array(stages.sizes(), dtype=np.int64),
        "stages.rows": np.concatenate(rows).astype(np.int64),
        "stages.V": np.concatenate(V),
        "stages.intercept": np.array(intercept),
        "stages.numbers": np.array(stages.numbers, dtype=np.float64),
    }
    if linear[0] is not None:
        arrays["stages.linear"] = np.array(linear)
    return arrays


def take_stages(arrays: dict[str, NDArray], d: int, m: int, with_linear: bool) -> Stages:
    """The stages of these arrays, which are taken out; ValueError unless they are consistent."""
    sizes = array(arrays, "stages.sizes", "i", (None,))
    n, total = len(sizes), int(sizes.sum()) if len(sizes) else 0
    if n < 1 or sizes.min() < 0 or total != int(sizes.astype(object).sum()):
        raise ValueError("its stages have no sizes")
    stages = Stages(d)
    pool = array(arrays, "stages.pool", "f", (None, d))
    rows = array(arrays, "stages.rows", "i", (total,))
    V = array(arrays, "stages.V", "f", (total, m))
    intercept = array(arrays, "stages.intercept", "f", (n, m))
    linear = array(arrays, "stages.linear", "f", (n, d, m)) if with_linear else [None] * n
    numbers = array(arrays, "stages.numbers", "f", (n, len(RECORDED) + 1), any_number=True)
    if total and not 0 <= rows.min() <= rows.max() < len(pool):
        raise ValueError("its stages have basis vectors that are not there")
    stages.pool, stages.numbers = list(pool), [tuple(row) for row in numbers.tolist()]
    ends = np.cumsum(sizes)[:-1]
    stages.stages = [
        Stage(*parts)
        for parts in zip(np.split(rows, ends), np.split(V, ends), intercept, linear, strict=True)
    ]
    return stages
