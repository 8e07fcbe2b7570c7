"""Arrays in .npy files that are mapped to memory, and are not trusted.

A file has a header and then the numbers, as `numpy.load` reads them. The caller knows the dtype and
the shape from elsewhere. A file that does not match them exactly is refused.
"""

import contextlib
import hashlib
import io
import math
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from fastpoly.rows.mapping import mapped

FORMAT_VERSION = 1  # the version of all files that this release writes and reads


def npy_header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """What a file of an array in C order begins with; spaces at the end may differ."""
    head = io.BytesIO()
    known = {"descr": npy.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    npy.write_array_header_1_0(head, known)
    return head.getvalue()


def write_array(path: Path, array: NDArray[Any], *, sync: bool = False) -> str:
    """Write an array, with `sync` down to the disk, and return the digest of its file."""
    array = np.ascontiguousarray(array)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    head, body = npy_header(array.dtype, array.shape), memoryview(array.reshape(-1).view(np.uint8))
    digest = hashlib.blake2b(head, digest_size=20)
    digest.update(body)
    with open(path, "wb") as file:
        file.write(head)
        file.write(body)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    return digest.hexdigest()


def map_array(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> NDArray[Any]:
    """Map the array of a file read-only; ValueError unless its dtype and shape are these."""
    try:
        with open(path, "rb") as file:
            # Compared, not parsed: NumPy's parser may fail in threads (with Python 3.11).
            wanted, begin = npy_header(dtype, shape), file.read(10)
            text = file.read(int.from_bytes(begin[8:], "little"))
            own = os.fstat(file.fileno()).st_size
            if (begin[:8], text.rstrip()) != (wanted[:8], wanted[10:].rstrip()):
                raise ValueError(
                    f"it does not begin as an array {shape} of {dtype}; it has {own} bytes"
                )
            first = file.tell()
            size = first + math.prod(shape) * dtype.itemsize
            if own != size:
                raise ValueError(f"it has {own} bytes, but should have {size}")
            return np.frombuffer(mapped(file, size)[first:], dtype).reshape(shape)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None


def identity(path: Path | str) -> tuple[int, ...]:
    """Numbers that change when a file is written to or replaced.

    Only the first two, the size and the time in whole seconds, are the same on all machines that
    share the file. The others depend on the file system through which it is seen.
    """
    try:
        state = os.stat(path)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    return state.st_size, state.st_mtime_ns // 10**9, state.st_mtime_ns, state.st_ino


def file_digest(path: Path) -> str:
    """The blake2b digest of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def sync_folder(folder: Path) -> None:
    """Bring the names of the files in a folder to the disk, on systems that can."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` in one step when it is complete, or never.

    A symbolic link keeps pointing at its target.
    """
    target = Path(os.path.realpath(path))
    # Not a file of `tempfile`: only its owner could read it, and then the same holds for `path`.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            # The caller does not know the temporary name.
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
