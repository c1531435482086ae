"""`trim`: a model with fewer pieces in its vocabulary, without training."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from limbeck.api.calls import python_call
from limbeck.api.model_folder import ModelFolder
from limbeck.api.objects import Objects
from limbeck.api.progress import progress_console
from limbeck.api.requests.trim import TrimRequest
from limbeck.api.requests.values import optional_path
from limbeck.api.results import Shown
from limbeck.core.blocks import Block
from limbeck.core.mistakes import mistakes_of
from limbeck.core.progress_bars import ProgressBar, line_by_line, print_plain
from limbeck.core.trims import Trim
from limbeck.corpus.settings import CorpusSpec
from limbeck.errors import CorpusError, RecipeError, together

if TYPE_CHECKING:
    from limbeck.corpus.source_report import SourceReport
    from limbeck.export.trimming import NamedTexts


@dataclass(frozen=True, repr=False)
class TrimResult(Shown):
    """The result of a trim.

    Args:
        folder: The smaller model, with its card.
        trim: The record: sizes, and what texts cost, before and after.
    """

    folder: Path
    trim: Trim

    @property
    def record(self) -> dict[str, Any]:
        """The record as plain values, as in `trim.json`."""
        return self.trim.to_dict()

    def blocks(self) -> Iterator[Block]:
        """Yield sizes before and after, and what texts of each source cost."""
        from limbeck.report.trim_text import trim_blocks

        yield from trim_blocks(self.trim)

    @property
    def place(self) -> str:
        """The line below the table: where the model lies."""
        return f"Folder: {self.folder}"

    def _csv(self) -> str:
        """Return its figures as CSV, unrounded."""
        from limbeck.report.trim_text import costs_csv

        return costs_csv(self.trim)


def carry_out_trim(request: TrimRequest) -> TrimResult:
    """Write a model with the pieces of its vocabulary that a text uses most, and measure what that costs.

    Nothing is trained. A text all of whose pieces stay is read as before, and its outputs are the same; any other text
    is cut into more pieces.

    Raises:
        LimbeckError: one clear line; see `limbeck.errors`.

    Example:
        >>> result = limbeck.trim("intfloat/e5-small-v2", "texts", coverage=0.9995, output="e5-trimmed")
        >>> result.folder
        ModelFolder('e5-trimmed')
    """
    has_pieces = request.pieces is not None
    has_coverage = request.coverage is not None
    if has_pieces == has_coverage:
        raise RecipeError(
            "Say how much of the vocabulary to keep by exactly one of two options: --pieces, a number of pieces, "
            "or --coverage, a share of the text's tokens."
        )
    if request.coverage == 0:
        raise RecipeError("--coverage is 0; give a share above 0, up to 1.")
    output = optional_path(request.output)
    if output is None:
        raise RecipeError("--output is missing: give the folder of the smaller model.")
    objects = Objects()
    model = objects.model(request.model, "model")
    spec = _corpus_of(objects.corpus(request.corpus, "corpus"), request.text_column)
    words = _words_of(request.always)
    from limbeck.corpus.source_report import SourceReport

    skipped = SourceReport()
    sources = _open_sources(spec, skipped)

    # Torch is imported from here on, which takes seconds.
    from limbeck.export.trimming import check_output, trim_model
    from limbeck.models.hub_files import check_there
    from limbeck.models.locating import locate_model
    from limbeck.models.piece_choice import PieceAim
    from limbeck.report.trim_text import write_trim_card

    check_output(output)
    located = locate_model(model)
    check_there(located)
    console = progress_console(request.console)
    with ProgressBar(console, is_even=False) as bar:
        trim = trim_model(
            located,
            sources,
            PieceAim(request.pieces, request.coverage, words),
            output,
            check=request.check,
            finish=lambda folder, record: write_trim_card(located, folder, record),
            report=line_by_line(bar, console),
        )
    for line in skipped.lines():
        print_plain(console, line, "yellow")
    return TrimResult(ModelFolder(output), trim)


def _corpus_of(document: dict[str, Any], text_column: str | None) -> CorpusSpec:
    """Return a corpus of text, checked.

    Args:
        document: The keys of a recipe's corpus.
        text_column: The column of texts, which takes precedence over that of the keys; None leaves it.

    Raises:
        CorpusError: for keys that it does not have, and for one without sources of text.
    """
    if text_column is not None:
        document = {**document, "text_column": text_column}
    try:
        spec = CorpusSpec(**document)
    except ValidationError as error:
        # `mistakes_of` gives a mistake without a place the place `recipe`, but here is none.
        raise together([CorpusError(line.removeprefix("recipe: ")) for line in mistakes_of(error)]) from None
    if spec.task is not None or not spec.places:
        raise CorpusError(
            "limbeck trim counts pieces in plain text, and --corpus is a task or has no source of text; give "
            "files, folders or data sets with a column of text."
        )
    return spec


def _open_sources(spec: CorpusSpec, skipped: SourceReport) -> list[NamedTexts]:
    """Open the sources of a corpus; their texts are the paragraphs of their documents.

    Args:
        spec: The corpus.
        skipped: Receives what reading skips.

    Raises:
        CorpusError: for a source that is nowhere, cannot be read, or holds no text.
    """
    from limbeck.corpus.source_report import SourceReport, nothing_in
    from limbeck.corpus.sources.named_sources import check_source, open_source
    from limbeck.corpus.sources.source_kinds import Source
    from limbeck.corpus.text.pieces import cut_document
    from limbeck.export.trimming import NamedTexts

    def paragraphs(name: str, source: Source) -> Iterator[str]:
        """Yield the paragraphs of a source, which is read only as they are asked for."""
        skipped_of_source = SourceReport()
        has_text = False
        for document in source.documents(skipped_of_source):
            for piece in cut_document(document, "paragraph"):
                has_text = True
                yield piece.text
        if not has_text:
            raise CorpusError(nothing_in(name, "text", skipped_of_source))
        skipped.merge(skipped_of_source)

    sources = []
    for place in spec.places:
        check_source(place, "texts")
        source = open_source(place, spec.text_column, separator=spec.separator)
        # A record may be published, so the path to a file on this machine is left out.
        name = Path(place).name if Path(place).expanduser().exists() else place
        sources.append(NamedTexts(name, paragraphs(name, source)))
    return sources


def _words_of(always: str | Path | Sequence[str] | None) -> list[str]:
    """Return the words whose pieces always stay."""
    if always is None:
        return []
    if isinstance(always, str | Path):
        from limbeck.corpus.files.small_files import read_texts

        return read_texts(Path(always).expanduser())
    return list(always)


trim = python_call("trim", TrimRequest, carry_out_trim)
