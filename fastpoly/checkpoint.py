"""States in files, by their public name; see `fastpoly.storage.state_file`."""

from fastpoly.storage.state_file import fingerprint, load_state, save_state

__all__ = ["fingerprint", "load_state", "save_state"]
