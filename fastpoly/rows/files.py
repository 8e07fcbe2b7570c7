"""Arrays in .npy files that are mapped to memory, and are not trusted.

A file has a header and then the numbers: what `numpy.load` reads. The manifest knows its dtype and
shape, so a file that is not exactly that is refused.
"""

import contextlib
import hashlib
import math
import os
import secrets
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 1  # of all files that this release writes and reads


def header(dtype: np.dtype, shape: tuple[int, ...]) -> bytes:
    """The header of a .npy file of version 1.0.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from fastpoly.rows.files import header
    >>> file = io.BytesIO(header(np.dtype("<i4"), (2,)) + np.array([3, 4], "<i4").tobytes())
    >>> np.load(file)
    array([3, 4], dtype=int32)
    """
    fields = f"{{'descr': '{dtype.str}', 'fortran_order': False, 'shape': {shape}, }}"
    magic, align = np.lib.format.magic(1, 0), np.lib.format.ARRAY_ALIGN
    before = len(magic) + 2  # bytes in front of the text: two hold its length
    length = -(-(before + len(fields) + 1) // align) * align - before
    text = fields.ljust(length - 1).encode() + b"\n"
    return magic + length.to_bytes(2, "little") + text


def write_array(path: Path, array: NDArray[Any]) -> str:
    """Write an array and return the digest of its file."""
    array = np.ascontiguousarray(array)
    array = array.astype(array.dtype.newbyteorder("<"), copy=False)
    head, body = header(array.dtype, array.shape), memoryview(array.reshape(-1).view(np.uint8))
    with open(path, "wb") as file:
        file.write(head)
        file.write(body)
    digest = hashlib.blake2b(head, digest_size=20)
    digest.update(body)
    return digest.hexdigest()


def map_array(path: Path, dtype: np.dtype, shape: tuple[int, ...]) -> NDArray[Any]:
    """The array of a file, mapped read-only; ValueError unless the file is exactly that."""
    head = header(dtype, shape)
    size = len(head) + math.prod(shape) * dtype.itemsize
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise ValueError(f"it has {found} bytes, but should have {size}")
            if file.read(len(head)) != head:
                raise ValueError(f"it does not begin as an array {shape} of {dtype}")
            if size == len(head):
                return np.empty(shape, dtype)
            return np.memmap(file, dtype, "r", len(head), shape).view(np.ndarray)
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror or error}") from None


def identity(path: Path) -> tuple[int, ...]:
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
