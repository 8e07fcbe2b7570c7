"""The command `fastpoly-shards`, which converts files to a folder of shards."""

import argparse
import sys
from collections.abc import Sequence

from tqdm import tqdm

from fastpoly.kernels.checks import BLOCK_DOUBLES
from fastpoly.rows.ingest import FORMATS, DataFile
from fastpoly.rows.shards import Shards
from fastpoly.rows.writing import write_shards


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
        print(f"fastpoly-shards: {error}", file=sys.stderr)
        return 1
    sizes = {"row": shards.n_samples, "feature": shards.n_features, "shard": len(shards)}
    counted = ", ".join(f"{n} {name}{'s' * (n != 1)}" for name, n in sizes.items())
    print(f"{shards.folder}: {counted}")
    return 0


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
    parser.add_argument(
        "--format", choices=sorted(set(FORMATS.values())), help="by default from the suffix"
    )
    parser.add_argument("--delimiter", help="for CSV files; by default a comma")
    parser.add_argument("--zero-based", action="store_true", help="libsvm indices start at 0")
    parser.add_argument("--rows-per-shard", type=int, default=BLOCK_DOUBLES)
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--quiet", action="store_true", help="show no progress bar")
    return parser


def _write(options: argparse.Namespace) -> Shards:
    files = [
        DataFile(file, options.format, options.delimiter, options.text, options.zero_based)
        for file in options.files
    ]
    with tqdm(unit=" rows", unit_scale=True, disable=options.quiet) as bar:
        return write_shards(
            options.folder, files, one_hot=options.one_hot, numeric=options.numeric,
            target=options.target, weight=options.weight, rows_per_shard=options.rows_per_shard,
            overwrite=options.overwrite, progress=bar.update,
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
