"""The command `fastpoly-shards`, which converts files to a folder of shards."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from tqdm import tqdm

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.rows.reading import read_csv_batches, read_libsvm_batches
from fastpoly.rows.shards import Shards
from fastpoly.rows.writing import write_shards

SUFFIXES = {
    "csv": ("csv",),
    "tsv": ("tsv",),
    "libsvm": ("libsvm", "svm", "svmlight", "txt"),
    "parquet": ("parquet", "pq"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Write shards, or check those of a folder. Errors are printed on one line."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.folder is None or not (options.files or options.verify):
        parser.error(
            "name the folder and the files to read first (or a folder and --verify); --one-hot, "
            "--numeric and --text take all names that follow them"
        )
    try:
        shards = Shards(options.folder, verify=True) if options.verify else _write(options)
    except (ValueError, TypeError, OSError, ImportError) as error:
        print(f"fastpoly-shards: {_with_options(str(error))}", file=sys.stderr)
        return 1
    sizes = {"row": shards.n_samples, "feature": shards.n_features, "shard": len(shards)}
    counted = ", ".join(f"{n} {name}{'s' * (n != 1)}" for name, n in sizes.items())
    print(f"{shards.folder}: {counted}")
    return 0


def _with_options(message: str) -> str:
    """An error that names the options of the command in place of arguments in Python."""
    for argument, option in (
        ("pass overwrite=True", "pass --overwrite"),
        ("name the column in texts", "name the column after --text"),
        ("convert it to one", "name the column after --text"),
    ):
        message = message.replace(argument, option)
    return message


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fastpoly-shards",
        usage="%(prog)s FOLDER FILE ... [--one-hot COLUMN ...] [--target COLUMN] [more options]",
        description="Write CSV, libsvm or parquet files as shards that fastpoly fits.",
    )
    parser.add_argument("folder", nargs="?", help="the folder for the shards")
    parser.add_argument("files", nargs="*", help="the files to read")
    parser.add_argument("--verify", action="store_true", help="check the shards of the folder")
    parser.add_argument("--one-hot", nargs="+", default=[], metavar="COLUMN")
    parser.add_argument("--numeric", nargs="+", default=[], metavar="COLUMN")
    parser.add_argument(
        "--text", nargs="+", default=[], metavar="COLUMN",
        help="one-hot columns of a CSV file whose integers are to be strings",
    )  # fmt: skip
    parser.add_argument("--target", metavar="COLUMN", help="not for libsvm files")
    parser.add_argument("--weight", metavar="COLUMN")
    parser.add_argument("--format", choices=sorted(SUFFIXES), help="by default from the suffix")
    parser.add_argument("--delimiter", help="for CSV files; by default a comma")
    parser.add_argument("--zero-based", action="store_true", help="libsvm indices start at 0")
    parser.add_argument("--rows-per-shard", type=int, default=BLOCK_DOUBLES)
    parser.add_argument("--no-sort", action="store_true", help="keep the order of the rows")
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    return parser


def _write(options: argparse.Namespace) -> Shards:
    with tqdm(unit=" rows", unit_scale=True, disable=options.quiet) as bar:
        return write_shards(
            options.folder, _batches(options), one_hot=options.one_hot, numeric=options.numeric,
            target=options.target, weight=options.weight, rows_per_shard=options.rows_per_shard,
            sort=not options.no_sort, overwrite=options.overwrite, progress=bar.update,
        )  # fmt: skip


def _batches(options: argparse.Namespace) -> Iterator[Any]:
    named = [*options.one_hot, *options.numeric, options.target, options.weight]
    columns = [name for name in named if name]
    unknown = [name for name in options.text if name not in options.one_hot]
    if unknown:
        raise ValueError(f"--text names {unknown[0]!r}, which is not a column of --one-hot")
    for file in options.files:
        kind = options.format or _kind(file)
        if options.text and kind not in ("csv", "tsv"):
            raise ValueError(f"--text is for CSV files, and {file} is {kind}")
        if kind == "libsvm":
            yield from read_libsvm_batches(file, zero_based=options.zero_based)
            continue
        if not options.target:
            raise ValueError(f"--target must name a column of {file}")
        if kind == "parquet":
            yield from _parquet(file, columns)
        else:
            delimiter = options.delimiter or {"csv": ",", "tsv": "\t"}[kind]
            categories = [name for name in options.one_hot if name != options.target]
            yield from read_csv_batches(
                file, columns=columns, texts=options.text, categories=categories,
                delimiter=delimiter,
            )  # fmt: skip


def _kind(file: str) -> str:
    suffix = file.rpartition(".")[2].lower()
    for kind, suffixes in SUFFIXES.items():
        if suffix in suffixes:
            return kind
    raise ValueError(f"--format must be given: the suffix of {file} is unknown")


def _parquet(file: str, columns: list[str]) -> Iterator[Any]:
    try:
        from pyarrow import parquet
    except ImportError:
        raise ImportError("parquet files need pyarrow; pip install pyarrow") from None
    yield from parquet.ParquetFile(file).iter_batches(columns=columns)


if __name__ == "__main__":
    sys.exit(main())
