"""`Variant`: further scores of sentence vectors beside those of a model's whole vectors."""

from typing import NamedTuple


class Variant(NamedTuple):
    """How further scores of a split are made; as text it is put behind the name of the split.

    Attributes:
        width: Components that the vectors are cut to; None leaves them whole.
        asymmetric: Whether the documents are another model's.
    """

    width: int | None = None
    asymmetric: bool = False

    def __str__(self) -> str:
        """Return the end of the names of split and column."""
        width = "" if self.width is None else f"@{self.width}"
        teacher = "@teacher" if self.asymmetric else ""
        return width + teacher

    @property
    def title(self) -> str:
        """The end of the title of a column."""
        width = "" if self.width is None else f", {self.width} components"
        teacher = ", asymmetric" if self.asymmetric else ""
        return width + teacher

    def place(self) -> tuple[bool, int, bool]:
        """Return the key by which variants are sorted: whole vectors first, then the wider ones."""
        if self.width is None:
            return False, 0, self.asymmetric
        return True, -self.width, self.asymmetric
