"""Sums over shards in a fixed order: a binary tree over the numbers of the shards.

Node (level, i) covers the shards i 2^level .. (i + 1) 2^level - 1, as far as they exist. Its sum is
that of its two children, left plus right. The additions are the same wherever a subtree is summed,
so the results are the same to the last bit.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

import numpy as np

Node = tuple[int, int]

# How much longer than equal ranges a range may be. More costs more time than the fewer sums save.
UNEVEN = 0.15


def add(a: Any, b: Any) -> Any:
    """a + b for numbers and arrays, for tuples of them, and for lists, which are concatenated.

    An array on the left may be overwritten.

    Examples
    --------
    >>> import numpy as np
    >>> from fastpoly.rows.tree import add
    >>> add((1.0, None, [3]), (2.0, None, [4]))
    (3.0, None, [3, 4])
    """
    if isinstance(a, tuple):
        return tuple(map(add, a, b))
    if isinstance(a, np.ndarray) and a.ndim:
        return np.add(a, b, out=a)
    return None if a is None else a + b


def subtrees(first: int, last: int) -> list[Node]:
    """The fewest nodes that cover the shards first..last-1, in order.

    Examples
    --------
    >>> from fastpoly.rows.tree import subtrees
    >>> subtrees(3, 8)
    [(0, 3), (2, 1)]
    """
    nodes = []
    while first < last:
        level = (first & -first).bit_length() - 1 if first else (last - first).bit_length() - 1
        while first + (1 << level) > last:
            level -= 1
        nodes.append((level, first >> level))
        first += 1 << level
    return nodes


def balanced_cuts(n_shards: int, n_parts: int) -> list[int]:
    """Where to cut the shards into at most n_parts ranges, with both ends.

    Cuts at multiples of a large power of two make few subtrees. It is the largest one with which
    no range is more than `UNEVEN` longer than with equal ranges.

    Examples
    --------
    >>> from fastpoly.rows.tree import balanced_cuts
    >>> balanced_cuts(40, 3)
    [0, 14, 26, 40]
    """
    n_parts = min(n_shards, n_parts)
    size = 1 << n_shards.bit_length()
    while True:
        equal = (n_shards * i // n_parts for i in range(n_parts))
        rounded = ((cut + size // 2) // size * size for cut in equal)
        cuts = sorted({n_shards, *(min(cut, n_shards) for cut in rounded)})
        longest = max(last - first for first, last in pairwise(cuts))
        if size == 1 or longest * n_parts <= (1 + UNEVEN) * n_shards:
            return cuts
        size //= 2


def subtree_sum(node: Node, value: Callable[[int], Any]) -> Any:
    """The sum of value(shard) over the shards of a node."""
    level, i = node
    if level == 0:
        return value(i)
    left = subtree_sum((level - 1, 2 * i), value)
    return add(left, subtree_sum((level - 1, 2 * i + 1), value))


def tree_sum(sums: Iterable[tuple[Node, Any]], n_shards: int) -> Any:
    """The sum over all shards from the sums of subtrees that cover them.

    Examples
    --------
    >>> from fastpoly.rows.tree import subtree_sum, subtrees, tree_sum
    >>> parts = [(node, subtree_sum(node, float)) for node in subtrees(0, 5)]
    >>> tree_sum(parts, 5)
    10.0
    """
    known = dict(sums)
    level = 0
    while n_shards > 1 << level:
        for i in range(0, -(-n_shards // (1 << level)), 2):
            left, right = known.pop((level, i), None), known.pop((level, i + 1), None)
            if left is None:
                continue  # part of a larger subtree, which is known
            known[level + 1, i // 2] = left if right is None else add(left, right)
        level += 1
    return known[level, 0]
