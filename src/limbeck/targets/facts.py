"""`StoreFacts`: whose outputs a store holds, and in which form; the file `store.json` in its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from limbeck.core.files import atomic_text
from limbeck.core.hashing import fingerprint
from limbeck.core.seals import examine, file_facts, sealed_text
from limbeck.errors import ModelError, suggestion
from limbeck.targets.row_files import NUMBER_FORMATS

STORE_FACTS = "store.json"
"""File of the facts."""
TEACHER_FOLDER = "teacher"
"""Folder inside a store with the teacher's configuration, tokenizer and modules, but without its weights."""
STORE_FORMAT = 1
"""Raise it when stores of this version could not be read by earlier ones."""
_LATER_FACTS = ("prompts", "endpoint", "computed_in")
"""Facts that the first stores did not have."""


@dataclass(frozen=True)
class EndpointFacts:
    """The server that a store's vectors came from.

    Args:
        url: Its base address, without any key.
        model: The model's name there.
        terms: Its terms of use, as the user wrote them: a name, a sentence or an address; empty where they did not.
        cut_to: What its texts were cut to, such as `8,000 characters`; empty for whole texts.
    """

    url: str
    model: str
    terms: str = ""
    cut_to: str = ""


@dataclass(frozen=True)
class StoreFacts:
    """Whose outputs a store holds, and in which form.

    Args:
        teacher: The teacher's name in messages and records.
        weights: A hash of all that decides its outputs, such as `limbeck.models.fingerprint.model_fingerprint`, or the
            address and the name of a model behind an endpoint.
        streams: The width of each stream, by its name.
        number_format: How numbers are kept, one of `NUMBER_FORMATS`.
        model: Where the teacher was read from: a folder, `package:NAME` or a Hub name; empty where it was no such
            model.
        hidden_width: The width of the hidden states that its vectors are pooled from; 0 where it is not known.
        labels: Names of a classifier's classes, in the order of its scores.
        figures: The teacher's size for tables, as a run's record has it; empty where it is not known.
        prompts: The text before texts of each role, where no files of the teacher say so: `query`, `document`, and
            `default` for texts without a role.
        endpoint: The server that the outputs came from; None for any other teacher.
        computed_in: The numbers that the teacher computed with, such as `bfloat16`, which round its outputs however
            they are kept; empty where it is not known.

    Raises:
        ModelError: for an unknown number format, and for a store without streams.
    """

    teacher: str
    weights: str
    streams: Mapping[str, int]
    number_format: str = "float32"
    model: str = ""
    hidden_width: int = 0
    labels: tuple[str, ...] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    endpoint: EndpointFacts | None = None
    computed_in: str = ""

    def __post_init__(self) -> None:
        if self.number_format not in NUMBER_FORMATS:
            hint = suggestion(self.number_format, NUMBER_FORMATS)
            raise ModelError(f"Unknown number format '{self.number_format}' of a store.{hint}")
        if not self.streams:
            raise ModelError(
                f"A store of {self.teacher} has no kind of output to store; give at least one, such as vector or "
                "logits."
            )

    @property
    def identity(self) -> str:
        """A hash that changes with what a student would learn."""
        # The other facts are for messages and tables. They do not change the numbers of the rows. Stores of earlier
        # versions, which do not know what their teacher computed in, keep the identity that runs have recorded.
        deciding = [self.weights, dict(self.streams), self.number_format]
        if self.computed_in:
            deciding.append(self.computed_in)
        return fingerprint(deciding)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return NUMBER_FORMATS[self.number_format].row_bytes(self.streams)


def write_facts(folder: Path, facts: StoreFacts) -> None:
    """Write the facts of a store; the files of its teacher, whose hashes are written too, are in the folder by then."""
    files = {}
    for path in sorted((folder / TEACHER_FOLDER).rglob("*")):
        if path.is_file():
            files[str(path.relative_to(folder))] = file_facts(path)
    stored = asdict(facts)
    # Facts that are empty are left out, so that a store without them is like one of an earlier version.
    for name in _LATER_FACTS:
        if not stored[name]:
            del stored[name]
    values = {"format": STORE_FORMAT, "files": files, "facts": stored}
    atomic_text(folder / STORE_FACTS, sealed_text(values))


def read_facts(folder: str | Path) -> StoreFacts:
    """Read the facts of a store.

    Raises:
        ModelError: for a folder that is no store, one that has changed since it was written, and one of a newer
            version.
    """
    place = Path(folder).expanduser()
    path = place / STORE_FACTS
    if not path.is_file():
        raise ModelError(f"'{folder}' is not a store of a teacher's outputs; make a store with `limbeck teach`.")
    # Compares the files of the teacher, which the facts list, with their hashes.
    examined = examine(path)
    if examined.listing is None:
        raise ModelError(
            f"The store '{folder}' is damaged: {examined.damage}; copy the store again, or make it anew with "
            "`limbeck teach`."
        )
    stored_format = examined.listing.get("format")
    if stored_format != STORE_FORMAT:
        raise ModelError(
            f"The store '{folder}' is of format {stored_format}, but this version of limbeck reads format "
            f"{STORE_FORMAT}; upgrade limbeck, or make the store anew with `limbeck teach`."
        )
    values = dict(examined.listing["facts"])
    # JSON has lists in place of tuples.
    values["labels"] = tuple(values["labels"])
    if "endpoint" in values:
        values["endpoint"] = EndpointFacts(**values["endpoint"])
    return StoreFacts(**values)
