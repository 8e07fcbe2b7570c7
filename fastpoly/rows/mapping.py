"""Files mapped to memory, without a descriptor that stays open.

`mmap.mmap`, and `numpy.memmap` with it, holds a descriptor for as long as the file is mapped. A
thousand shards would exceed the usual limit of 1024. The system itself needs none after mapping.
"""

import ctypes
import mmap
import os
import weakref
from functools import cache
from typing import Any, BinaryIO


def mapped(file: BinaryIO, size: int) -> memoryview:
    """The first `size` bytes (at least one) of an open file, read-only.

    Examples
    --------
    >>> import tempfile
    >>> from fastpoly.rows.mapping import mapped
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(b"bytes")
    ...     _ = file.flush()
    ...     view = mapped(file, 5)
    >>> bytes(view), view.readonly
    (b'bytes', True)
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
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int,
        ctypes.c_ssize_t,
    ]  # fmt: skip
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return libc
