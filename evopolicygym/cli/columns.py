"""A table that leaves out its right-hand columns where there is no room for all."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

_PADDING = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column, with its cells from top to bottom; one whose cells are all empty is not shown.

    Args:
        title: its head.
        cells: as many as the table has rows.
        right: numbers stand on the right.
    """

    title: str
    cells: Sequence[Text]
    right: bool = False

    @property
    def width(self) -> int:
        """In cells of the terminal."""
        return max(len(self.title), *(cell.cell_len for cell in self.cells))


def fitted_table(columns: Sequence[Column], *, width: int, least: int) -> Table:
    """The columns from the left that fit.

    Args:
        width: of the terminal, in cells.
        least: how many columns are kept however narrow it is.
    """
    shown = [column for column in columns if any(cell.plain for cell in column.cells)]
    while len(shown) > least and sum(column.width + _PADDING for column in shown) - _PADDING > width:
        shown.pop()
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for column in shown:
        table.add_column(column.title, justify="right" if column.right else "left", overflow="fold")
    for row in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*row)
    return table
