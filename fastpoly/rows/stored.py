"""Blocks of rows in shards: opened when they are first needed, in any process.

Pickling keeps only the arguments from which shards and blocks are made. A process that receives
them again reuses those that it already has, with their mapped files and row gradients.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.kernels.matrix import shared_ones
from fastpoly.rows.block import Block, Targets, stored_numbers
from fastpoly.rows.design import Design
from fastpoly.rows.shard import Affine, Part, Shard

Floats = NDArray[np.float64]

# Lists that a process keeps of those it received: the shards of a fit, its rows, and two parts of
# them, of which one is held out.
KEPT_LISTS = 4

_received: OrderedDict[str, Any] = OrderedDict()
_lock = Lock()


def receive(make: Callable[..., Any], key: str, *arguments: Any) -> Any:
    """The list of that key in this process, made if it is not here."""
    with _lock:
        if key not in _received:
            _received[key] = make(*arguments, key=key)
        _received.move_to_end(key)
        while len(_received) > KEPT_LISTS:
            _received.popitem(last=False)
        return _received[key]


def received(key: str) -> Any | None:
    """The list of that key, if this process has received it."""
    with _lock:
        if key in _received:
            _received.move_to_end(key)  # a list in use is not the one to drop
        return _received.get(key)


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

    Attributes
    ----------
    activation : {"squared", "anova"}
    fit_lower : {None, "augment", "explicit"}
    loss : object
        A complete loss.
    m : int
        Number of outputs.
    table : ndarray, (n_classes, 1 or m), or None
        What each stored class is to the loss; None where stored targets are numbers.
    by_class : ndarray, (n_classes,), or None
        Weights of the classes.
    units : ndarray, (2, m), or None
        Stored numbers t become (t - units[0]) / units[1].
    scaling : Affine or None
        Of the features.
    """

    activation: str
    fit_lower: str | None
    loss: Any
    m: int
    table: Floats | None = None
    by_class: Floats | None = None
    units: Floats | None = None
    scaling: Affine | None = None

    def block(self, shard: Shard, place: int, spare: list) -> Block:
        """The rows of a shard."""
        matrix = shard.matrix(self.fit_lower == "augment", self.scaling)
        design = Design(matrix, self.activation, fit_lower=self.fit_lower, n_threads=1)
        y = shard.targets()
        if self.table is None:
            targets = Targets(stored_numbers(y, self.loss, self.units, f"shard {shard.number}"))
        else:
            targets = Targets(y, self.table)
        w = shard.weights()
        if self.by_class is not None:
            w = self.by_class[y] if w is None else self.by_class[y] * w
        block = Block(design, targets, self.loss, self.m, w, place, spare)
        block.lock = Lock()
        return block


class StoredBlocks:
    """The blocks of shards.

    Parameters
    ----------
    shards : ShardList
    form : Form
    memory : float or None
        Bytes that the blocks may keep in a process between two passes: those of the first shards
        are kept, the others are opened again in every pass. None for no limit.
    part : Part, optional
        Only these rows have a weight.
    key : str, optional
        The name by which other processes know the list; by default drawn at random.
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
        widths = [s.files["indices"].shape for s in self.shards if s.kind in ("codes", "mixed")]
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
