"""Arrays in .npy files that are mapped to memory, and are not trusted.

A file has a header and then the numbers: what `numpy.load` reads. What its dtype and shape are is
known from elsewhere, so that a file either is exactly that or is refused.
"""

import contextlib
import hashlib
import io
import math
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

FORMAT_VERSION = 1  # of all files that this release writes and reads


def write_array(path: Path, array: NDArray[Any]) -> str:
    """Write an array and return the digest of its file."""
    array = np.ascontiguousarray(array)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    head = io.BytesIO()
    npy.write_array_header_1_0(head, npy.header_data_from_array_1_0(array))
    body = memoryview(array.reshape(-1).view(np.uint8))
    digest = hashlib.blake2b(head.getvalue(), digest_size=20)
    digest.update(body)
    with open(path, "wb") as file:
        file.write(head.getvalue())
        file.write(body)
    return digest.hexdigest()


def map_array(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> NDArray[Any]:
    """The array of a file, mapped read-only; ValueError unless the file is exactly that."""
    try:
        with open(path, "rb") as file:
            try:
                known = npy.read_magic(file) == (1, 0)
                found = npy.read_array_header_1_0(file) if known else None
            except Exception:  # a broken header can fail in many ways
                found = None
            own = os.fstat(file.fileno()).st_size
            if found != (shape, False, dtype):
                raise ValueError(
                    f"it does not begin as an array {shape} of {dtype}; it has {own} bytes"
                )
            size = file.tell() + math.prod(shape) * dtype.itemsize
            if own != size:
                raise ValueError(f"it has {own} bytes, but should have {size}")
            if size == file.tell():
                return np.empty(shape, dtype)
            return np.memmap(file, dtype, "r", file.tell(), shape).view(np.ndarray)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None


def identity(path: Path | str) -> tuple[int, ...]:
    """What changes when a file is written to or replaced."""
    try:
        state = os.stat(path)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None
    return state.st_size, state.st_mtime_ns, state.st_ino


def file_digest(path: Path) -> str:
    """blake2b of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def replace_text(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
