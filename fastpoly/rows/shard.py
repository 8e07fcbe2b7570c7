"""One shard: files that hold some of the rows, checked and mapped to memory."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.matrix import Matrix, ScaledRows, StoredRows, as_matrix
from fastpoly.rows.format import File
from fastpoly.rows.statistics import Statistics, row_statistics

Floats = NDArray[np.float64]


class Affine(NamedTuple):
    """Scaled features (x - center) * factor, (d,) each; sparse rows have no center."""

    center: Floats
    factor: Floats


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


def shared(identities: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """What other processes know about files: the part of each `identity` that all machines see."""
    return {name: known[:2] for name, known in identities.items()}


class Shard:
    """The rows of one shard, mapped when they are first used. It can be pickled.

    Parameters
    ----------
    folder : Path
    number : int
        The number of the shard, which names it in errors and seeds its random rows.
    files : dict of File
    kind : str
    shape : tuple of int
        (n, d)
    n_classes : int
        0 where targets are arbitrary numbers.
    part : Part or None
    identities : dict of tuple of int
        The identities of the files when the shards were opened. In another process only their
        first numbers are known. What is not known is added at first use.
    """

    def __init__(
        self,
        folder: Path,
        number: int,
        files: dict[str, File],
        kind: str,
        shape: tuple[int, int],
        n_classes: int,
        part: Part | None,
        identities: dict[str, tuple[int, ...]],
    ) -> None:
        self.folder, self.number, self.files, self.kind = folder, number, files, kind
        self.shape, self.n_classes, self.part = shape, n_classes, part
        self.identities = identities
        self.n_rows = shape[0]
        self.matrices: dict[bool, Matrix] = {}
        self._arrays: dict[str, NDArray] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Shard, (
            self.folder, self.number, self.files, self.kind, self.shape, self.n_classes, self.part,
            shared(self.identities),
        )  # fmt: skip

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

    def matrix(self, augment: bool, scaling: Affine | None = None) -> Matrix:
        """X, checked on first use; copied only where sparse rows are scaled."""
        if scaling is None and augment in self.matrices:
            return self.matrices[augment]
        a = self.arrays
        with self._naming("x" if self.kind == "dense" else "indices"):
            if self.kind == "dense":
                X = a["x"] if scaling is None else ScaledRows(a["x"], *scaling)
                found = as_matrix(X, augment)
            else:
                data, indptr = a.get("data"), a.get("indptr")
                found = as_matrix(StoredRows(self.shape, a["indices"], data, indptr), augment)
                if scaling is not None:
                    own = scaling.factor[a["indices"]]
                    own = own if data is None else data * own.astype(data.dtype)
                    found = as_matrix(StoredRows(self.shape, a["indices"], own, indptr), augment)
        if scaling is None:
            self.matrices[augment] = found
        return found

    def statistics(self, by_class: Floats | None) -> Statistics:
        """The statistics of these rows, without the classes that their codes stand for.

        `by_class` (n_classes,) are weights of the classes; the weight of a row is multiplied by
        that of its class.
        """
        X, y, w = self.matrix(False), self.targets(), self.weights()
        if by_class is not None:
            w = by_class[y] if w is None else by_class[y] * w
        if X.sparse:
            data, indices, indptr = X.arrays
            return row_statistics(
                StoredRows((X.n, X.d), indices, data, indptr), y, w, self.n_classes
            )
        return row_statistics(X.array, y, w, self.n_classes)

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

    def weights(self) -> Floats | None:
        """The weights of the rows, 0 for rows of other parts; None where all are 1."""
        w, mask = self.arrays.get("w"), self._mask()
        if w is not None and not (np.isfinite(w).all() and (w >= 0).all()):
            with self._naming("w"):
                raise ValueError("weights must be finite and not negative")
        if mask is None:
            return w
        return mask.astype(np.float64) if w is None else np.where(mask, w, 0.0)
