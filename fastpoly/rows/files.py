"""Files that are mapped without a descriptor, written with a digest, or replaced in one step."""

import contextlib
import ctypes
import hashlib
import io
import mmap
import os
import secrets
import weakref
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


def mapped(file: BinaryIO, size: int) -> memoryview:
    """The first `size` bytes (at least one) of an open file, read-only.

    `mmap.mmap`, and `numpy.memmap` with it, holds a descriptor for as long as the file is mapped: a
    thousand shards would exceed the usual limit of 1024. The system needs none after mapping.
    """
    if os.name != "posix":
        return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
    libc = _libc()
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, file.fileno(), 0)
    if address == ctypes.c_void_p(-1).value:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    memory = (ctypes.c_ubyte * size).from_address(address)
    # Not at exit, when other threads may still read it.
    weakref.finalize(memory, libc.munmap, address, size).atexit = False
    return memoryview(memory).cast("B").toreadonly()


@cache
def _libc() -> Any:
    libc = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    libc.mmap.restype = pointer
    libc.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_ssize_t]
    libc.munmap.argtypes = [pointer, size]
    return libc


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
