"""`Variant`: a way to score sentence vectors, such as the vectors cut to fewer components.

A retrieval can also be *asymmetric*: the student reads the queries, and its teacher reads the documents. So a small
model can search an index that a large one has built.
"""

from typing import NamedTuple


class Variant(NamedTuple):
    """How the vectors of a split are scored. Its text follows the name of the split, as in `test@256@teacher`.

    The variant without changes (`width` None, not asymmetric) has the empty text.

    Attributes:
        width: Number of components that the vectors are cut to; None leaves them whole.
        asymmetric: Whether the vectors of the documents are the teacher's rather than the model's own.
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
        """Return the key by which variants are sorted: whole vectors first, then cut ones, the widest first."""
        if self.width is None:
            return False, 0, self.asymmetric
        return True, -self.width, self.asymmetric
