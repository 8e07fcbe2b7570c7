"""The axes that a display draws on."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def get_axes(ax: "Axes | None", **size: Any) -> "Axes":
    """The given axes, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib; install it with: pip install "fastpoly[plot]"'
        ) from error
    return plt.subplots(layout="constrained", **size)[1] if ax is None else ax
