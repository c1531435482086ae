"""`EndpointOptions`: how an endpoint is asked for the vectors of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from limbeck.targets.endpoint.limit import TextLimit, TooLong

STREAM = "vector"
"""The stream of an endpoint's vectors: they are finished."""


@dataclass(frozen=True)
class EndpointOptions:
    """How an endpoint is asked for the vectors of texts, and how they are stored.

    Args:
        batch_size: Texts of a request.
        concurrency: Requests under way at the same time.
        limit: The longest text that the model takes; None where it is not known.
        too_long: Whether texts above the limit are refused or cut.
        price: Price of a million tokens, in any currency; None where it is not known.
        terms: The endpoint's terms of use, see `EndpointFacts`; empty keeps those of the store.
        prompts: The text before texts of each role, see `StoreFacts`.
        number_format: How numbers are kept, see `limbeck.targets.row_files.NUMBER_FORMATS`.
    """

    batch_size: int = 32
    concurrency: int = 4
    limit: TextLimit | None = None
    too_long: TooLong = "refuse"
    price: float | None = None
    terms: str = ""
    prompts: Mapping[str, str] = field(default_factory=dict)
    number_format: str = "float32"

    @property
    def cuts(self) -> TextLimit | None:
        """The limit that texts are cut to; None where none is cut."""
        return self.limit if self.too_long == "cut" else None

    def sent_form(self, text: str) -> str:
        """Return a text as it is sent: whole, or cut to the limit."""
        return text if self.cuts is None else self.cuts.cut(text)
