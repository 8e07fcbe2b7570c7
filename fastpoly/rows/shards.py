"""Rows in files: a folder of shards, mapped to memory, in the order in which they were written.

Pickling keeps only what a shard is made from; another process maps it when it is first used, and
keeps it (`fastpoly.rows.engine.receive`).
"""

import math
import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import as_count, as_positive, as_seed
from fastpoly.kernels.matrix import Matrix, ScaledRows, StoredRows, as_matrix
from fastpoly.rows.engine import Engine, as_engine, receive
from fastpoly.rows.format import File, Manifest, identity
from fastpoly.rows.statistics import Scaling, Statistics, row_statistics
from fastpoly.state import Floats
from fastpoly.tables import Encoding


class Part(NamedTuple):
    """Random rows of every shard: those whose random number is inside low..high, or outside."""

    seed: int
    low: float
    high: float
    outside: bool = False

    def mask(self, number: int, n_rows: int, depth: int) -> NDArray[np.bool_]:
        """Which rows of a shard belong to the part, (n_rows,); `depth` parts are around it."""
        counter = [0, 0, depth, number]
        u = np.random.Generator(np.random.Philox(key=self.seed, counter=counter)).random(n_rows)
        return ((self.low <= u) & (u < self.high)) != self.outside


@dataclass(eq=False)
class Shard:
    """The rows of one shard, mapped when they are first used. It can be pickled."""

    folder: Path
    number: int  # names the shard in errors, and seeds its random rows
    files: dict[str, File]
    kind: str
    shape: tuple[int, int]  # (n, d)
    n_classes: int  # 0 where targets are arbitrary numbers
    parts: tuple[Part, ...] = ()  # each is some rows of the one before; other rows have weight 0
    # Of the files when the shards were opened, by array, as far as they are known in this process.
    identities: dict[str, tuple[int, ...]] = field(default_factory=dict)
    _arrays: dict[str, NDArray] | None = None
    _matrices: dict[bool, Matrix] = field(default_factory=dict)

    def __getstate__(self) -> dict[str, Any]:
        portable = {name: known[:2] for name, known in self.identities.items()}
        return {**self.__dict__, "identities": portable, "_arrays": None, "_matrices": {}}

    @property
    def n_rows(self) -> int:
        return self.shape[0]

    @property
    def n_entries(self) -> int:
        """How many numbers are stored."""
        return math.prod(self.files["x" if "x" in self.files else "indices"].shape)

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
        return self.map() if self._arrays is None else self._arrays

    def map(self) -> dict[str, NDArray]:
        """Check and map the files."""
        self.check_unchanged()
        arrays = {}
        for name, file in self.files.items():
            with self._naming(name):
                arrays[name] = file.map(self.folder)
        self._arrays = arrays
        return arrays

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
        dense, a = self.kind == "dense", self.arrays
        with self._naming("x" if dense else "indices"):
            if dense and factor is not None:
                center = np.zeros(len(factor)) if scaling.center is None else scaling.center
                return as_matrix(ScaledRows(a["x"], center, factor), augment)
            stored = a.get("indices"), a.get("data"), a.get("indptr")
            if augment not in self._matrices:
                X = a["x"] if dense else StoredRows(self.shape, *stored)
                self._matrices[augment] = as_matrix(X, augment)
            if factor is None:
                return self._matrices[augment]
            indices, data, indptr = stored  # which have been checked
            own = factor[indices]
            own = own if data is None else data * own.astype(data.dtype)
            return as_matrix(StoredRows(self.shape, indices, own, indptr), augment)

    def statistics(self, by_class: Floats | None) -> Statistics:
        """The statistics of these rows; `by_class` (n_classes,) are weights of the classes."""
        X = self.matrix(False)
        if X.sparse:
            data, indices, indptr = X.arrays
            rows = StoredRows((X.n, X.d), indices, data, indptr)
        else:
            rows = X.array
        return row_statistics(rows, self.targets(), self.weights(by_class), self.n_classes)

    def part_of(self, part: Part) -> Self:
        """The same shard with the weights of other rows set to 0."""
        return replace(self, parts=(*self.parts, part))

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
        """Which rows belong to the parts, (n_rows,); None for all."""
        masks = [p.mask(self.number, self.n_rows, i) for i, p in enumerate(self.parts)]
        return np.logical_and.reduce(masks) if masks else None

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
        """The weights of the rows, times those of classes, 0 in other parts; None if all are 1."""
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
    """Shards of fits; `key` is the name by which other processes know them."""

    def __init__(self, shards: Iterable[Shard], key: str | None = None) -> None:
        super().__init__(shards)
        self.key = key or secrets.token_hex(16)

    def __reduce__(self) -> tuple[Any, ...]:
        return receive, (ShardList, self.key, list(self))


class Shards:
    """Rows in a folder that `write_shards` wrote. Estimators fit them in place of X and y.

    Opening reads the manifest and checks the sizes and headers of the files. The indices and
    numbers of a shard are checked when it is first used. The files must not change after opening.
    One that was written to or replaced is refused: this process compares its size, time and inode,
    and others its size and its time in whole seconds, so copies on other machines must keep the
    times. A file that is truncated while it is read ends the process.

    Parameters
    ----------
    folder : str or path-like
    verify : bool
        Also read every file now, compare its digest, and check all rows.
    memory : float, optional
        Bytes that the rows may take in each process of a fit, besides the mapped files. What does
        not fit is computed again in every pass, with the same result. By default everything is
        kept, about 8 bytes per row and output.

    Attributes
    ----------
    folder : Path
    n_samples, n_features : int
    classes : ndarray, (n_levels,), or None
        The distinct targets, sorted; None where targets are arbitrary numbers.
    encoding : Encoding or None
        How the columns of a table became codes; None for shards that were written from X, as are
        its `feature_names`, such as "user=3".
    digest : str
        Shards with the same digest are the same data.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from fastpoly import Shards, write_shards
    >>> folder = tempfile.mkdtemp()
    >>> batches = [(np.eye(3), [1, 2, 1]), (np.ones((1, 3)), [2])]
    >>> shards = write_shards(folder, batches, rows_per_shard=3)
    >>> len(shards), shards.n_samples, shards.n_features, shards.classes
    (2, 4, 3, array([1, 2]))
    """

    def __init__(
        self, folder: str | os.PathLike[str], *, verify: bool = False, memory: float | None = None
    ) -> None:
        self.memory = None if memory is None else as_positive(memory, "memory")
        self.folder = Path(os.path.abspath(folder))
        self.manifest = m = Manifest.read(self.folder)
        self.n_features, self.classes = m.n_features, np.array(m.classes) if m.classes else None
        self.engine: Engine | None = None
        self.known_encoding: Encoding | None = None
        self.joined: Any = None  # the tables of its keys, see `Joined.over`
        self.list = ShardList(
            Shard(self.folder, number, files, m.kind, (n, m.n_features), len(m.classes))
            for number, (files, n) in enumerate(zip(m.shards, m.rows, strict=True))
        )
        for shard in self.list:
            shard.map()
        if verify:
            self.verify()

    def __len__(self) -> int:
        return len(self.list)

    def __getitem__(self, i: int) -> Shard:
        shard = self.list[i]
        shard.check_unchanged()
        return shard

    def __iter__(self) -> Iterator[Shard]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"Shards({str(self.folder)!r})"

    @property
    def n_samples(self) -> int:
        return sum(shard.n_rows for shard in self.list)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Which shards of the folder these are."""
        return tuple(shard.number for shard in self.list)

    @property
    def encoding(self) -> Encoding | None:
        if self.joined is not None:
            return None
        if self.known_encoding is None:
            self.known_encoding = self.manifest.read_encoding(self.folder)
        return self.known_encoding

    @property
    def feature_names(self) -> Sequence[str] | None:
        return None if self.encoding is None else self.encoding.column_names

    @property
    def digest(self) -> str:
        numbers = self.numbers
        chosen = "" if numbers == tuple(range(len(self.manifest.rows))) else numbers
        return f"{self.manifest.digest} {chosen} {self.list[0].parts or ''}".strip()

    def check_unchanged(self) -> None:
        """Raise if a file was written to or replaced since the shards were opened."""
        for shard in self.list:
            shard.check_unchanged()

    def verify(self) -> None:
        """Read everything and raise ValueError where a digest or a row is wrong."""
        for shard in self:
            shard.verify()
        self.manifest.read_encoding(self.folder, verify=True)

    def categories(self, field: str) -> NDArray:
        """The levels of a field; level i is column first + i of X."""
        fields = () if self.encoding is None else self.encoding.fields
        known = {f.name: f.values for f in fields if f.kind != "number"}
        if field not in known:
            raise ValueError(f"{field!r} is not a one-hot field; known: {list(known)}")
        return known[field]

    def take(self, numbers: Sequence[int]) -> Self:
        """Some of the shards, in this order; for example a fold of whole shards.

        Negative numbers count from the end.
        """
        wanted, n = np.asarray(numbers), len(self)
        if wanted.size and wanted.dtype.kind not in "iu":
            raise TypeError(
                f"numbers must be integers, got {numbers!r}; np.flatnonzero gives those of a mask"
            )
        if wanted.ndim != 1 or not wanted.size or not np.isin(wanted, np.r_[-n:n]).all():
            raise ValueError(f"numbers must be one or more of 0..{n - 1}, got {numbers!r}")
        return self._but(list=ShardList(self.list[i] for i in wanted))

    def split(self, *shares: float, seed: int | None = 0) -> list[Self]:
        """Split the rows at random: one Shards per share. Shares must sum to at most 1.

        Rows that belong to another share have weight 0. The same seed always gives the same rows;
        None draws one.
        """
        seed = as_seed(None) if seed is None else seed
        if not hasattr(seed, "__index__") or not 0 <= seed < 2**128:
            raise ValueError(f"seed must be None or an integer in 0..2**128 - 1, got {seed!r}")
        ends = np.concatenate([[0.0], np.cumsum(shares)])
        if not shares or not min(shares) > 0 or not ends[-1] <= 1 + 1e-12:
            raise ValueError(
                f"shares must be one or more positive numbers that sum to at most 1, got {shares}"
            )
        ends[np.abs(ends - 1) < 1e-12] = 1.0
        return [self._part(Part(int(seed), low, high)) for low, high in pairwise(ends.tolist())]

    def _part(self, part: Part) -> Self:
        """The same shards, where rows outside of the part have weight 0."""
        return self._but(list=ShardList(shard.part_of(part) for shard in self.list))

    def folds(self, n_folds: int, seed: int | None = 0) -> list[tuple[Self, Self]]:
        """For every fold, random rows to train on and the other rows to test with."""
        if as_count(n_folds, "n_folds") < 2:
            raise ValueError("n_folds must be at least 2; with one fold there are no training rows")
        tests = self.split(*[1 / n_folds] * n_folds, seed=seed)
        parts = [test.list[0].parts[-1]._replace(outside=True) for test in tests]
        return [(self._part(part), test) for part, test in zip(parts, tests, strict=True)]

    def targets(self) -> NDArray:
        """The targets of the rows, (n,) or (n, n_targets), in the order in which they were written.

        For a split, those of its rows; for `take`, shard by shard.
        """
        y = np.concatenate([shard.targets()[shard.own_rows()] for shard in self])
        y = y if self.classes is None else self.classes[y]
        return y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y

    def class_counts(self) -> NDArray[np.intp]:
        """The number of rows of every class; rows of weight 0 do not count."""
        counts = np.zeros(len(self.manifest.classes), dtype=np.intp)
        for shard in self.list:
            y, w = shard.targets(), shard.weights()
            counts += np.bincount(y if w is None else y[w > 0], minlength=len(counts))
        return counts

    def weights(self) -> NDArray[np.float64] | None:
        """The weights of the rows, (n,), in the order of `targets`; None where all are 1."""
        if not any("w" in shard.files for shard in self.list):
            return None
        return np.concatenate([shard.weights()[shard.own_rows()] for shard in self])

    def on(self, engine: Any) -> Self:
        """The same rows, with passes that a `concurrent.futures.Executor` or an engine runs."""
        return self._but(engine=as_engine(engine))

    def _but(self, **changes: Any) -> Self:
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__, **changes)
        return other

    def __getstate__(self) -> dict[str, Any]:
        # An engine belongs to the process that has it.
        return {**self.__dict__, "engine": None, "known_encoding": None}
