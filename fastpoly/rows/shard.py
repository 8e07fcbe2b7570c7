"""One shard, some of the rows in mapped files, and the blocks of a fit that are made of shards.

Shards and blocks are opened when they are first needed, in any process. Pickling keeps only what
they are made from. A process that receives a list of them again (`fastpoly.rows.engine.receive`)
reuses the one that it has, with its mapped files and row gradients.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from threading import Lock
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.matrix import Matrix, ScaledRows, StoredRows, as_matrix, shared_ones
from fastpoly.rows.block import Block, Targets
from fastpoly.rows.design import Design
from fastpoly.rows.engine import receive
from fastpoly.rows.format import File
from fastpoly.rows.statistics import Scaling, Statistics, row_statistics

Floats = NDArray[np.float64]
Identities = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Part:
    """Random rows of every shard: those whose random number is inside low..high, or outside.

    A part within another one has some of its rows, by random numbers of its own.
    """

    seed: int
    low: float
    high: float
    outside: bool = False
    within: Self | None = None

    @property
    def depth(self) -> int:
        """How many parts this one is within."""
        return 0 if self.within is None else 1 + self.within.depth

    def mask(self, number: int, n_rows: int) -> NDArray[np.bool_]:
        """Which rows of a shard belong to the part, (n_rows,)."""
        counter = [0, 0, self.depth, number]
        u = np.random.Generator(np.random.Philox(key=self.seed, counter=counter)).random(n_rows)
        inside = (self.low <= u) & (u < self.high)
        chosen = ~inside if self.outside else inside
        return chosen if self.within is None else chosen & self.within.mask(number, n_rows)


def identity(path: str) -> tuple[int, ...]:
    """Numbers that change when a file is written to or replaced.

    Only the first two, the size and the time in whole seconds, are the same on all machines that
    share the file. The others depend on the file system through which it is seen.
    """
    try:
        state = os.stat(path)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    return state.st_size, state.st_mtime_ns // 10**9, state.st_mtime_ns, state.st_ino


def shared(identities: Identities) -> Identities:
    """What other processes know about files: the part of each `identity` that all machines see."""
    return {name: known[:2] for name, known in identities.items()}


@dataclass(eq=False)
class Shard:
    """The rows of one shard, mapped when they are first used. It can be pickled.

    `identities` are those of the files when the shards were opened. In another process only their
    first numbers are known. What is not known is added at first use.
    """

    folder: Path
    number: int  # names the shard in errors, and seeds its random rows
    files: dict[str, File]
    kind: str
    shape: tuple[int, int]  # (n, d)
    n_classes: int  # 0 where targets are arbitrary numbers
    part: Part | None
    identities: Identities
    _arrays: dict[str, NDArray] | None = None
    _matrices: dict[bool, Matrix] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        known = shared(self.identities)
        return {**self.__dict__, "identities": known, "_arrays": None, "_matrices": {}}

    @property
    def n_rows(self) -> int:
        return self.shape[0]

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Name the shard and the file in errors."""
        try:
            yield
        except ValueError as error:
            path = self.folder / self.files[name].name
            raise ValueError(f"shard {self.number}, file {path}: {error}") from None

    @property
    def arrays(self) -> dict[str, NDArray]:
        """The arrays by name, checked and mapped at first use."""
        if self._arrays is None:
            self.check_unchanged()
            arrays = {}
            for name, file in self.files.items():
                with self._naming(name):
                    arrays[name] = file.map(self.folder)
            self._arrays = arrays
        return self._arrays

    def check_unchanged(self) -> None:
        """Raise if a file was written to or replaced since the shards were opened."""
        for name, file in self.files.items():
            with self._naming(name):
                known = self.identities.get(name, ())
                found = identity(str(self.folder / file.name))
                if found[: len(known)] != known:
                    raise ValueError("it changed after the shards were opened; open them again")
            self.identities[name] = found

    def verify(self) -> None:
        """Compare digests and check all rows."""
        for name, file in self.files.items():
            with self._naming(name):
                file.verify(self.folder)
        self.matrix(False)
        self.targets()
        self.weights()
        self.own_rows()

    def matrix(self, augment: bool, scaling: Scaling | None = None) -> Matrix:
        """X, checked on first use; copied only where sparse rows are scaled."""
        factor = None if scaling is None else scaling.factor
        if factor is None and augment in self._matrices:
            return self._matrices[augment]
        a = self.arrays
        with self._naming("x" if self.kind == "dense" else "indices"):
            if self.kind == "dense":
                X = a["x"]
                if factor is not None:
                    center = np.zeros(len(factor)) if scaling.center is None else scaling.center
                    X = ScaledRows(X, center, factor)
            else:
                data, indptr = a.get("data"), a.get("indptr")
                X = StoredRows(self.shape, a["indices"], data, indptr)
                if factor is not None:
                    as_matrix(X, augment)  # checks the indices
                    own = factor[a["indices"]]
                    own = own if data is None else data * own.astype(data.dtype)
                    X = StoredRows(self.shape, a["indices"], own, indptr)
            found = as_matrix(X, augment)
        if factor is None:
            self._matrices[augment] = found
        return found

    def statistics(self, by_class: Floats | None) -> Statistics:
        """The statistics of these rows; `by_class` (n_classes,) are weights of the classes."""
        X, w = self.matrix(False), self.weights(by_class)
        if not X.sparse:
            return row_statistics(X.array, self.targets(), w, self.n_classes)
        data, indices, indptr = X.arrays
        rows = StoredRows((X.n, X.d), indices, data, indptr)
        return row_statistics(rows, self.targets(), w, self.n_classes)

    def part_of(self, part: Part) -> Self:
        """The same shard with the weights of other rows set to 0."""
        other = object.__new__(type(self))  # not copy.copy, which leaves the mapped arrays out
        other.__dict__.update(self.__dict__, part=replace(part, within=self.part))
        return other

    def targets(self) -> NDArray:
        """The checked targets: class codes (n,), or numbers (n, n_targets)."""
        y, n_classes = self.arrays["y"], self.n_classes
        with self._naming("y"):
            if not n_classes and not np.isfinite(y).all():
                raise ValueError("it contains NaN or infinity")
            if n_classes and len(y) and not (y.min() >= 0 and y.max() < n_classes):
                raise ValueError(f"levels must lie in 0..{n_classes - 1}, got {y.max()}")
        return y if y.dtype != np.int32 else y.copy()  # indices, which must not change

    def _mask(self) -> NDArray[np.bool_] | None:
        """Which rows belong to the part, (n_rows,); None where there is no part."""
        return None if self.part is None else self.part.mask(self.number, self.n_rows)

    def own_rows(self) -> Any:
        """An index of the rows that belong to the part, in the order of the table."""
        places, mask = self.arrays.get("places"), self._mask()
        if places is None:
            return slice(None) if mask is None else mask
        seen = np.zeros(self.n_rows, bool)
        if len(places) and places.min() >= 0 and places.max() < self.n_rows:
            seen[places] = True
        with self._naming("places"):
            if not seen.all():
                raise ValueError("it must hold the place of every row once")
        return places if mask is None else places[mask[places]]

    @property
    def n_own_rows(self) -> int:
        """How many rows belong to the part."""
        mask = self._mask()
        return self.n_rows if mask is None else int(np.count_nonzero(mask))

    def weights(self, by_class: Floats | None = None) -> Floats | None:
        """The weights of the rows, 0 for rows of other parts; None where all are 1.

        With `by_class` (n_classes,), each is multiplied by the weight of its class.
        """
        w, mask = self.arrays.get("w"), self._mask()
        if w is not None and not (np.isfinite(w).all() and (w >= 0).all()):
            with self._naming("w"):
                raise ValueError("weights must be finite and not negative")
        if mask is not None:
            w = mask.astype(np.float64) if w is None else np.where(mask, w, 0.0)
        if by_class is None:
            return w
        w_class = by_class[self.targets()]
        return w_class if w is None else w_class * w


class ShardList(list[Shard]):
    """The shards of one fit; `key` is the name by which other processes know them."""

    def __init__(self, shards: Iterable[Shard], key: str | None = None) -> None:
        super().__init__(shards)
        self.key = key or secrets.token_hex(16)

    def __reduce__(self) -> tuple[Any, ...]:
        return receive, (ShardList, self.key, list(self))


@dataclass(frozen=True)
class Form:
    """How stored rows become rows of a fit.

    `table` (n_classes, 1 or m) is what each class is to the loss; None where targets are numbers.
    `by_class` (n_classes,) are weights of the classes. `scaling` has the units of the features, and
    of targets that are numbers.
    """

    activation: str
    fit_lower: str | None
    loss: Any
    m: int
    table: Floats | None = None
    by_class: Floats | None = None
    scaling: Scaling | None = None

    def block(self, shard: Shard, place: int, spare: list) -> Block:
        """The rows of a shard."""
        matrix = shard.matrix(self.fit_lower == "augment", self.scaling)
        design = Design(matrix, self.activation, fit_lower=self.fit_lower, n_threads=1)
        y = shard.targets()
        targets = Targets(y if self.table is not None else self._numbers(y, shard), self.table)
        w = shard.weights(self.by_class)
        block = Block(design, targets, self.loss, self.m, w, place, spare)
        block.lock = Lock()
        return block

    def _numbers(self, y: Floats, shard: Shard) -> Floats:
        """Targets (n, m) that are stored as numbers; an indicator of labels becomes signs."""
        if self.loss.target == "sign":
            if not (np.isin(y, (0, 1)).all() or (np.abs(y) == 1).all()):
                raise ValueError(f"shard {shard.number}: labels must be 0 and 1, or -1 and +1")
            return np.where(y > 0, 1.0, -1.0)
        return self.loss.encode(y if self.scaling is None else self.scaling.targets(y), y.shape[1])


class StoredBlocks:
    """The blocks of shards.

    Blocks may keep `memory` bytes in a process between two passes: those of the first shards are
    kept, the others are opened again in every pass. Only rows of `part` have a weight. Other
    processes know the list by its `key`.
    """

    def __init__(
        self, shards: ShardList, form: Form, memory: float | None = None, part: Part | None = None,
        key: str | None = None,
    ) -> None:  # fmt: skip
        self.shards, self.form, self.memory, self.part = shards, form, memory, part
        self.key = key or secrets.token_hex(16)
        sizes = np.cumsum([kept_bytes(shard, form) for shard in self.shards])
        self.n_kept = len(sizes) if memory is None else int((sizes <= memory).sum())
        self.spare: list[np.ndarray] = []
        self.opened: dict[int, Block] = {}
        widths = [s.files["indices"].shape for s in self.shards if s.kind == "codes"]
        # The constants of rows of a fixed number of entries: once, for the longest shard.
        self.longest = max(widths, default=None)

    def __len__(self) -> int:
        return len(self.shards)

    def __getitem__(self, place: int) -> Block:
        block = self.opened.get(place)
        if block is None:
            if self.longest is not None:
                shared_ones(*self.longest)
            shard = self.shards[place]
            shard = shard if self.part is None else shard.part_of(self.part)
            block = self.form.block(shard, place, self.spare)
            if place < self.n_kept:
                block = self.opened.setdefault(place, block)
        return block

    def __reduce__(self) -> tuple[Any, ...]:
        return receive, (StoredBlocks, self.key, self.shards, self.form, self.memory, self.part)


def kept_bytes(shard: Shard, form: Form) -> int:
    """The most that the block of a shard keeps between two passes."""
    n, d = shard.shape
    # Row gradients and their products with signs, or outputs on a ray, or curvatures; besides,
    # targets, weights, and the order in which a pass takes the rows.
    kept = n * (3 * form.m + 3)
    if shard.kind == "dense" and n * d <= BLOCK_DOUBLES:
        kept += BLOCK_DOUBLES  # what `DenseCurvature` keeps of small shards
    if shard.kind != "dense" and form.scaling is not None:
        kept += prod(shard.files["indices"].shape)
    return 8 * kept
