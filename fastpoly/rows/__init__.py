"""The data, in memory or in files, behind one contract: small sums over many rows."""

from typing import Any

from fastpoly.rows.contract import Rows
from fastpoly.rows.design import Design, check_design
from fastpoly.rows.shard_design import ShardDesign
from fastpoly.rows.shards import Shards
from fastpoly.rows.writing import write_shards

__all__ = ["Design", "Rows", "ShardDesign", "Shards", "as_rows", "write_shards"]


def as_rows(data: Any) -> Rows:
    """Return data in the form that the algorithm takes; `Shards` get the default activation."""
    if isinstance(data, Shards):
        return ShardDesign(data)
    check_design(data)
    return data
