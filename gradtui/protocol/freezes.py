"""What commands have frozen and unfrozen, as plain data."""

from __future__ import annotations

from gradtui.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Changed:
    """Parameters that a command made trainable, or froze; by path, which stays valid when a new listing changes indexes."""

    trainable: bool
    paths: tuple[str, ...]
    statistics: tuple[str, ...] = ()
    """Paths of the modules whose running statistics are held from now on, or are released."""
    joined: tuple[tuple[str, int, int], ...] = ()
    """The parameters that joined an optimizer: path, index of the optimizer among the live ones, index of its group."""


@dataclass(frozen=True, slots=True)
class FreezeInForce:
    """What one command has frozen and no other has unfrozen since."""

    selection: str
    """As the command named it, such as the path of a module."""
    parameters: tuple[int, ...]
    """Indexes, in order."""
    is_divided: bool = False
    """A command has unfrozen or frozen a part of it since."""
    statistics: tuple[int, ...] = ()
    """Indexes of the modules whose running statistics it holds."""


@dataclass(frozen=True, slots=True)
class RowsInForce:
    """The rows of a parameter that commands have frozen while the others train."""

    parameter: int
    """Its index."""
    rows: str
    """As a command names them: `0:32000`. Of many ranges only the first, and an ellipsis."""
    frozen: int
    """Their number."""
    count: int
    """The rows of the parameter."""
