"""`ParallelText`: one language of parallel text as a source, whose sentences the teacher reads in its own language.

A student can learn a language that its teacher does not know: the teacher's vector of the English sentence is what the
student's vectors of both the English sentence and its translation should be (Reimers and Gurevych 2020,
arXiv 2004.09813, equation 1).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from limbeck.core.mistakes import explain
from limbeck.corpus.files.addresses import FilePath, is_remote
from limbeck.corpus.files.parallel_files import ParallelFiles
from limbeck.corpus.messages import safe_name
from limbeck.corpus.progress import ITEMS_BETWEEN_REPORTS, StepProgress
from limbeck.corpus.settings.parallel import PARALLEL_PREFIX, Parallel
from limbeck.corpus.source_report import SourceReport, items_behind
from limbeck.corpus.sources.file_sources import check_files, expand_home, file_state
from limbeck.corpus.text.cursor import Cursor
from limbeck.corpus.text.documents import Document, clean_text
from limbeck.errors import CorpusError


def open_parallel_text(text: str) -> ParallelText:
    """Open the language of parallel text that a string names: `parallel:de {"files": {"en": FILE, "de": FILE}}`.

    Raises:
        CorpusError: if the string has another form, or a file is missing.
    """
    language, _, document = text.removeprefix(PARALLEL_PREFIX).partition(" ")
    try:
        parallel = TypeAdapter(Parallel).validate_python(json.loads(document))
    except ValidationError as error:
        # `explain` names the recipe, of which the string need not be a part.
        problem = explain(error).removeprefix("recipe: ")
        raise CorpusError(f"The source '{safe_name(text)}': {problem}") from None
    except ValueError:
        raise CorpusError(
            f"The source '{safe_name(text)}' cannot be written as text; write parallel text as {{parallel: {{en: "
            "FILE, de: FILE}}."
        ) from None
    if language not in parallel.all_languages:
        raise CorpusError(f"The source '{safe_name(text)}' has no language '{safe_name(language)}'.")
    for place in parallel.places:
        check_files(place)
    paths = tuple(place if is_remote(place) else expand_home(place) for place in parallel.places)
    files = ParallelFiles(parallel.all_languages, paths, tuple(parallel.columns or ()))
    return ParallelText(files, language)


@dataclass(frozen=True)
class ParallelText:
    """The sentences of one language, each a document with the text that the teacher reads in its place.

    Args:
        files: The sentences of all languages. The teacher reads those of the first language.
        language: The language of the documents; that of the teacher too.
    """

    files: ParallelFiles
    language: str

    def fingerprint(self) -> Any:
        """Return the languages, the columns, and path, size and time of change of every file."""
        states = [file_state(path, str(path)) for path in self.files.paths]
        return ["parallel", self.language, list(self.files.languages), list(self.files.columns), states]

    def read_files(self) -> Sequence[FilePath]:
        """Return the files."""
        return self.files.paths

    def documents(
        self, report: SourceReport, progress: StepProgress | None = None, cursor: Cursor | None = None
    ) -> Iterator[Document]:
        """Iterate over the sentences.

        Args:
            report: Receives sentences that a language lacks, once for all languages: from the first.
            progress: Called with the number of sentences that were read.
            cursor: Position at which reading begins; it counts sentences. What is in front of it is read again, since
                languages keep step with each other only from the beginning on.
        """
        if cursor is None:
            cursor = Cursor()
        teacher_language = self.files.languages[0]
        # Each language reads the same files, so the first alone reports what they lack. The report of another language
        # is forgotten.
        if self.language != teacher_language:
            report = SourceReport()
        sentences_before: int = cursor.position
        new_rows = items_behind(sentences_before, self.files.rows(report), report)
        for number, row in enumerate(new_rows, start=sentences_before + 1):
            cursor.move(cursor.shard, number)
            if progress is not None and number % ITEMS_BETWEEN_REPORTS == 0:
                progress(number, None, "sentences")
            text = clean_text(row.values[self.language])
            teacher_text = clean_text(row.values[teacher_language])
            if text and teacher_text:
                yield Document(text, teacher_text=teacher_text)
