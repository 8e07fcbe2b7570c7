"""The data, in memory or in files: blocks of rows, and small sums over all of them."""

from fastpoly.rows.coded import CodedRows, Tables
from fastpoly.rows.design import Design
from fastpoly.rows.rows import Rows, ShardDesign, as_rows
from fastpoly.rows.shards import Shards
from fastpoly.rows.writing import write_shards

__all__ = [
    "CodedRows", "Design", "Rows", "ShardDesign", "Shards", "Tables", "as_rows", "write_shards",
]  # fmt: skip
