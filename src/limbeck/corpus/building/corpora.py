"""`Corpus` and `LabelledCorpus`: a folder of the cache that holds token rows, opened for training.

A *token row* is what the models read at once: a block of a text, or a labelled row. The *split* is `train` or
`held_out`. The *manifest* is the JSON file of the folder, with counts and settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from limbeck.core.cache import read_manifest
from limbeck.core.kinds import KindName
from limbeck.corpus.batches.mixing import RowMix
from limbeck.corpus.building.block_encoding import UNIT
from limbeck.corpus.digests import digest_of
from limbeck.corpus.messages import safe_name
from limbeck.corpus.settings import Mixing, SourceUse
from limbeck.corpus.settings.mix import shares_by_size
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.stored.arrow_files import read_documents
from limbeck.corpus.text.documents import Document
from limbeck.corpus.text.pieces import UNITS
from limbeck.errors import CorpusError

if TYPE_CHECKING:
    import datasets

OTHER_LANGUAGES = "other"
"""What figures call the sources whose language is not known, beside those of a known one."""
HELD_OUT_BY_SOURCE = "held_out_by_source"
"""Key of a manifest with the numbers of held-out `documents` and `rows` of each source; earlier versions lack it."""


class Corpus:
    """A finished corpus, opened from its folder.

    Args:
        path: The folder that `build_corpus` made.
        mix: The shares of its sources; `None` reads every row once an epoch.
        titles: Names of the sources in records; `None` takes the sources as the settings name them.
        uses: The role, prompt and units of each source; empty where no source has any.
        languages: The language of each source, "" where it is not known; empty where no source has one.

    Attributes:
        path: The folder.
        titles: Names of the sources in records.
        manifest: Counts, settings, tokenizer and report of the build.
        train: Blocks to train on: columns `input_ids` and `length`, of pairs also `token_type_ids`.
        held_out: Blocks of the held-out documents, the same columns; empty when nothing is held out.
        shorter: The same text in shorter blocks, the shortest first, which a stage trains on before this corpus.

    Raises:
        CorpusError: if the folder is not a complete corpus.
    """

    def __init__(
        self,
        path: str | Path,
        mix: Mixing | None = None,
        titles: Sequence[str] | None = None,
        uses: Sequence[SourceUse] = (),
        languages: Sequence[str] = (),
    ) -> None:
        manifest = read_manifest(Path(path))
        if manifest is None or "splits" not in manifest:
            raise CorpusError(
                f"'{path}' holds no complete corpus (unfinished or damaged): build the corpus with build_corpus."
            )
        self.path = Path(path)
        self.manifest: dict[str, Any] = manifest
        self.mix = mix
        self.titles: Sequence[str] = titles or manifest["settings"]["sources"]
        self.uses = uses
        self.languages = languages
        self.train = _open_split(self.path, "train")
        self.held_out = _open_split(self.path, "held_out")
        self.shorter: Sequence[Corpus] = ()

    @property
    def views(self) -> list[Corpus]:
        """The text at every block length of a stage, the shortest first. Mostly this corpus is the only one."""
        return [*self.shorter, self]

    @property
    def content(self) -> list[str]:
        """A hash of the content of each source, which does not depend on where it is stored.

        Each is a hash of the source's blocks; in a streamed corpus, of the beginning of the stream. A labelled corpus
        has a hash of the rows of each source, and a last one of all their tokens.
        """
        return list(self.manifest.get("content", ()))

    @property
    def identity(self) -> str:
        """A hash of the content of all sources."""
        return digest_of(self.content)

    @property
    def tokens(self) -> int:
        """Number of tokens to train on, special tokens included."""
        return int(self.manifest["splits"]["train"]["tokens"])

    @property
    def report(self) -> SourceReport:
        """Everything that was skipped or repaired while the sources were read."""
        return SourceReport.from_dict(self.manifest["report"])

    def row_mix(self, seed: int) -> RowMix | None:
        """Return the draw of each epoch's rows by the shares of the mix, or `None` without a mix.

        Args:
            seed: Decides the draw.

        Raises:
            CorpusError: if a source, or a language whose sources divide one share, has no row to train on.
        """
        if self.mix is None:
            return None
        rows_by_source: list[int] = self.manifest["source_rows"]
        self._check_that_shares_have_rows(self.mix, rows_by_source)
        return RowMix(rows_by_source, self.mix.shares(rows_by_source), seed)

    def _check_that_shares_have_rows(self, mix: Mixing, rows_by_source: Sequence[int]) -> None:
        """Refuse a share without rows. A source without any is fine where others of its language have some."""
        names = mix.share_names(self.titles)
        rows_by_share: dict[str, int] = {}
        for name, rows in zip(names, rows_by_source, strict=True):
            rows_by_share[name] = rows_by_share.get(name, 0) + rows

        rows_by_language = self.rows_by_language()
        for name, share, rows in zip(names, mix.shares(rows_by_source), rows_by_source, strict=True):
            # A source that is listed twice has all of its rows at its first place.
            is_share_of_nothing = share > 0 and rows == 0
            if rows_by_share[name] == 0 or is_share_of_nothing:
                # A source may be named by its language, as those of `mix.by` and of parallel text are.
                is_language = rows_by_language.get(name) == 0
                noun = "language" if is_language else "source"
                raise CorpusError(
                    f"The {noun} '{safe_name(name)}' has no block to train on once repeated and held-out documents "
                    f"are left out: give more text of this {noun}, or leave the {noun} out of the mix."
                )

    def shares(self) -> list[float]:
        """Return the share of each source among the rows that are trained on, as the mix sets it."""
        rows_by_source: list[int] = self.manifest["source_rows"]
        if self.mix is None:
            return shares_by_size(rows_by_source)
        return self.mix.shares(rows_by_source)

    def shares_of_roles(self) -> dict[str, int | float]:
        """Return the share of each role among the rows that are trained on.

        A role, such as `query`, is the use of a source that its settings name. The result is empty where no source has
        a role.
        """
        if not any(use.role for use in self.uses):
            return {}
        share_of_role: dict[str, int | float] = {}
        for use, share in zip(self.uses, self.shares(), strict=True):
            role = use.role or "no role"
            share_of_role[role] = share_of_role.get(role, 0.0) + share
        return share_of_role

    def shares_of_languages(self) -> dict[str, float]:
        """Return the share of each language among the rows that are trained on; empty where no language is known."""
        share_of_language: dict[str, float] = {}
        # Where no language is known, there are no languages; otherwise there is one for each source.
        for language, share in zip(self.languages, self.shares(), strict=False):
            name = language or OTHER_LANGUAGES
            share_of_language[name] = share_of_language.get(name, 0.0) + share
        return share_of_language

    def rows_by_language(self) -> dict[str, int]:
        """Count the rows to train on of each language; empty of a stream, and where no language is known."""
        rows_by_language: dict[str, int] = {}
        # Either of the two may be empty.
        for language, rows in zip(self.languages, self.manifest.get("source_rows", ()), strict=False):
            name = language or OTHER_LANGUAGES
            rows_by_language[name] = rows_by_language.get(name, 0) + rows
        return rows_by_language

    def held_out_by_language(self, counted: str) -> dict[str, list[int]]:
        """Return the places of the held-out rows of each language in `held_out`; empty where no language is known.

        Args:
            counted: `rows` gives rows, and `documents` the places of documents in `held_out_documents()`.
        """
        # The held-out rows stand source by source. Older manifests have no counts, and a corpus may have no languages.
        counts: list[int] = self.manifest.get(HELD_OUT_BY_SOURCE, {}).get(counted, [])
        places_by_language: dict[str, list[int]] = {}
        first = 0
        for language, count in zip(self.languages, counts, strict=False):
            places = places_by_language.setdefault(language or OTHER_LANGUAGES, [])
            places += range(first, first + count)
            first += count
        return places_by_language

    def rows_by_unit(self) -> dict[str, int | float]:
        """Count the rows to train on of each unit, such as sentences and titles.

        The result is empty where all rows are of the same unit. In a streamed corpus only the rows of its stored
        beginning are counted.
        """
        if UNIT not in self.train.column_names:
            return {}
        # The column has the place of each row's unit in `UNITS`.
        unit_of_row = self.train.with_format("numpy")[UNIT][:]
        counts = np.bincount(unit_of_row, minlength=len(UNITS))
        rows_by_unit: dict[str, int | float] = {}
        for name, rows in zip(UNITS, counts, strict=True):
            if rows > 0:
                rows_by_unit[name] = int(rows)
        return rows_by_unit

    def describe_rows(self) -> Iterator[str]:
        """Yield a line with the shares of roles, one with those of languages, and one with the rows of each unit."""
        share_of_role = self.shares_of_roles()
        if share_of_role:
            roles = [f"{role} {share:.1%}" for role, share in share_of_role.items()]
            yield f"by role: {', '.join(roles)}"
        share_of_language = self.shares_of_languages()
        if share_of_language:
            languages = [f"{language} {share:.1%}" for language, share in share_of_language.items()]
            yield f"by language: {', '.join(languages)}"
        rows_by_unit = self.rows_by_unit()
        if rows_by_unit:
            total = sum(rows_by_unit.values())
            units = [f"{unit} {rows:,} ({rows / total:.1%})" for unit, rows in rows_by_unit.items()]
            yield f"by unit: {', '.join(units)}"

    def held_out_documents(self) -> list[Document]:
        """Return the text of the held-out documents, in the order of the sources."""
        return list(read_documents(self.path))

    def __repr__(self) -> str:
        return f"Corpus({len(self.train):,} blocks, {self.tokens:,} tokens, {str(self.path)!r})"


class LabelledCorpus(Corpus):
    """A finished labelled corpus, opened from its folder.

    `train` and `held_out` have the columns `input_ids`, `length`, `labels` (number of the class, value, first and last
    token of the answer, or of each token the number of its word's class, -100 for all but a word's first) and, where
    the tokenizer's model has segments, `token_type_ids`. A question has a row for every window of its context, and so
    has a sentence of tagged words that is longer than one. Of a ranking a row is a pair of query and document, its
    label NaN where it has none; the column `query` numbers the query.

    `manifest` counts rows as `documents` and `held_out_documents`, and their distinct texts as `texts` and
    `held_out_texts`; `splits` counts token rows as `blocks`. `held_out_documents()` gives each held-out text once,
    followed by the second texts (questions) of its rows, a line each.

    Args:
        path: The folder that `build_labelled_corpus` made.

    Raises:
        CorpusError: if the folder is not a complete labelled corpus.
    """

    def __init__(self, path: str | Path) -> None:
        super().__init__(path)
        if "task" not in self.manifest:
            raise CorpusError(f"'{path}' is a corpus of text without labels: open it with the class Corpus.")
        self.task: KindName = self.manifest["task"]

    def shares(self) -> list[float]:
        """Return the share of each source in the rows that were read."""
        return shares_by_size(list(self.manifest["sources"].values()))

    def __repr__(self) -> str:
        return f"LabelledCorpus({self.task}, {len(self.train):,} rows, {self.tokens:,} tokens, {str(self.path)!r})"


def _open_split(folder: Path, split: str) -> datasets.Dataset:
    """Open the token rows of a split, memory-mapped."""
    import datasets  # The library takes long to import, and training on other batches does not need it.

    # `load_dataset` would copy the rows to the library's own cache.
    parts = [datasets.Dataset.from_file(str(file)) for file in sorted(folder.glob(f"{split}-*.arrow"))]
    parts_with_rows = [part for part in parts if len(part)]
    # Without any row the first part stands for all, since it has the columns.
    return datasets.concatenate_datasets(parts_with_rows or parts[:1])
