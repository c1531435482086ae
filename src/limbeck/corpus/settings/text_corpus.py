"""`CorpusSettings`: a corpus of text with every key filled in, as it is built or streamed."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from limbeck.core.fields import Length, Share
from limbeck.corpus.settings.checked import Checked
from limbeck.corpus.settings.corpus import DEFAULT_HELD_OUT, DEFAULT_LENGTH, CorpusSpec
from limbeck.corpus.settings.mix import LanguageShares, Mixing, MixSpec, SourceShares
from limbeck.corpus.settings.parallel import names_parallel_text
from limbeck.corpus.settings.sources import SourceSpec, SourceUse
from limbeck.corpus.settings.text import Unit

_LANGUAGE = "{language}"
"""The placeholder of `mix.by` whose values are languages."""
_SHORTEST_PAIR = 5
"""Length of a pair in tokens: one of each segment, and BERT's three special ones."""


class CorpusSettings(Checked, CorpusSpec):
    """A corpus of text with the defaults of all keys, and what a teacher reads before its texts.

    Raises:
        CorpusError: if a value cannot be meant, or `mix.by` finds no sources.
    """

    unit: Unit = "document"
    length: Length = DEFAULT_LENGTH
    join: bool = False
    minimum_tokens: int = Field(4, ge=1, le=1_000_000)
    pairs: bool = False
    student_prompts: Literal["teacher", "none"] = "teacher"
    held_out: Share = DEFAULT_HELD_OUT
    shuffle_buffer: int = Field(10_000, ge=1, le=10_000_000)
    held_out_documents: int = Field(5000, ge=0)
    """Most documents to hold out, whatever the share. They are chosen by a hash of each text."""
    prompts: dict[str, str] = Field(default_factory=dict)
    """Text that the teacher reads before texts of a role; before texts without a role under the empty name."""

    text_keys: bool = False
    """Whether each row has the key of its text, by which what a teacher said of it is found."""
    whole_texts: bool = False
    """Whether each piece of text is one row: the student reads its beginning, and its key is that of the whole text."""

    _source_of_value: dict[str, str] = PrivateAttr(default_factory=dict)
    """The sources that `mix.by` finds, by the value of its placeholder. Found once: files may come meanwhile. Empty
    without `mix.by`."""

    @classmethod
    def of(cls, corpus: CorpusSpec, prompts: dict[str, str] | None = None) -> CorpusSettings:
        """Fill in the defaults of a corpus of text.

        Args:
            corpus: The corpus, as a stage cuts it.
            prompts: As the attribute.

        Raises:
            CorpusError: if prompts do not go with other keys, or `mix.by` finds no sources.
        """
        keys = {key: getattr(corpus, key) for key in corpus.model_fields_set if getattr(corpus, key) is not None}
        return cls(**keys, prompts=prompts or {})

    @model_validator(mode="after")
    def _find_sources_of_mix(self) -> CorpusSettings:
        if self.mix is not None and self.mix.by is not None:
            from limbeck.corpus.sources.file_patterns import find_sources

            self._source_of_value = find_sources(self.mix.by)
        return self

    @model_validator(mode="after")
    def _sources_are_different(self) -> CorpusSettings:
        # Where no source has a use or a share, a source may be listed several times.
        has_weights = self.mix is not None and self.mix.weights is not None
        has_shares = any(source.share for source in self.described_sources)
        if not (self.uses or has_weights or has_shares):
            return self
        uses = self.uses or (SourceUse(),) * len(self.places)
        times_listed = Counter(zip(self.places, uses, strict=True))
        for (place, _), times in times_listed.items():
            if times > 1:
                raise ValueError(f"the source '{place}' is listed twice with the same settings: list it once")
        return self

    @model_validator(mode="after")
    def _blocks_can_be_cut(self) -> CorpusSettings:
        if self.has_pieces and (self.join or self.pairs):
            key = "join" if self.join else "pairs"
            raise ValueError(
                f"'{key}' joins texts to blocks, but the prompts and 'units' of sources keep every text apart: "
                f"leave out '{key}', or the 'role' and 'units' of each source"
            )
        if self.pairs and self.length < _SHORTEST_PAIR:
            raise ValueError(
                f"length {self.length} has no room for a pair, [CLS] A [SEP] B [SEP]; give a length of at least "
                f"{_SHORTEST_PAIR} tokens"
            )
        return self

    @property
    def places(self) -> list[str]:
        """The sources by their names, those that `mix.by` finds among them."""
        if self._source_of_value:
            return list(self._source_of_value.values())
        return super().places

    @property
    def titles(self) -> tuple[str, ...]:
        """Names of the sources in records: the values of the placeholder of `mix.by`, or the sources as they are.

        A source that is listed again is named with its use.
        """
        if self._source_of_value:
            return tuple(self._source_of_value)
        if self.teaches_translations:
            return self._titles_by_language()
        # Without uses nothing tells the places of a source apart.
        if not self.uses:
            return tuple(self.places)
        times_listed = Counter(self.places)
        titles = []
        for place, use in zip(self.places, self.uses, strict=True):
            if times_listed[place] == 1:
                titles.append(place)
            else:
                titles.append(f"{place} ({use.title})")
        return tuple(titles)

    def _titles_by_language(self) -> tuple[str, ...]:
        """Names of the sources where some are parallel text: the languages of these, numbered where one comes again."""
        titles: list[str] = []
        times_so_far: Counter[str] = Counter()
        for source, place in zip(self.described_sources, self.places, strict=True):
            title = place
            if names_parallel_text(place) and source.language:
                title = source.language
            times_so_far[title] += 1
            if times_so_far[title] == 1:
                titles.append(title)
            else:
                titles.append(f"{title} ({times_so_far[title]})")
        return tuple(titles)

    @cached_property
    def uses(self) -> tuple[SourceUse, ...]:
        """The role, prompt and units of each source, in their order; empty where no source has any."""
        # The sources that `mix.by` finds have no keys.
        described = self.described_sources or [SourceSpec(source=place) for place in self.places]
        uses = []
        for source in described:
            prompt = self.prompts.get(source.role or "", "")
            units = source.units or self.units or ()
            uses.append(SourceUse(source.role, prompt, tuple(units)))
        is_plain = all(use == SourceUse() for use in uses)
        return () if is_plain else tuple(uses)

    @property
    def student_reads_prompts(self) -> bool:
        """Whether the student reads the prompts too; else rows have `teacher_input_ids` beside what it reads."""
        return self.student_prompts == "teacher"

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """The language of each source, "" where it is not known; empty where no source has one.

        It is the value of `{language}` in `mix.by`, or what the recipe says of the source.
        """
        if self._source_of_value:
            values_are_languages = self.mix is not None and _LANGUAGE in str(self.mix.by)
            return tuple(self._source_of_value) if values_are_languages else ()
        languages = tuple(source.language or "" for source in self.described_sources)
        return languages if any(languages) else ()

    @property
    def stated_mixing(self) -> Mixing | None:
        """The rule of the sources' shares that is given: the mix, or the shares of sources; None if nothing is given.

        An exponent is one of the sizes of languages where a language has several sources, and of sources otherwise.
        """
        if self.mix is None:
            shares = tuple(source.share for source in self.described_sources)
            return SourceShares(shares) if any(shares) else None

        # A source of an unknown language stands for itself. There are no languages where none is known.
        names = []
        for language, place in zip(self.languages, self.places, strict=False):
            names.append(language or place)
        language_has_several_sources = len(set(names)) < len(names)
        if self.mix.exponent is not None and language_has_several_sources:
            return LanguageShares(self.mix.exponent, tuple(names))
        return self.mix

    @property
    def mixing(self) -> Mixing | None:
        """The rule of the sources' shares; None where sources are read as they are.

        A stream of several sources takes them by their sizes, if nothing else is given.
        """
        if self.stated_mixing is None and self.streaming and len(self.places) > 1:
            return MixSpec(exponent=1.0)
        return self.stated_mixing

    @property
    def source_prompts(self) -> tuple[str, ...]:
        """The text in front of the pieces of each source; empty where no source has a prompt."""
        prompts = tuple(use.prompt for use in self.uses)
        return prompts if any(prompts) else ()

    @property
    def has_pieces(self) -> bool:
        """Whether some source has a prompt or units of its own, so that each block is one piece of text."""
        return bool(self.source_prompts) or any(use.units for use in self.uses)

    @property
    def cutting(self) -> list[Any]:
        """Plain JSON values that decide how the sources are cut, beside unit and length.

        The list is empty where no source has a prompt or units. Roles are not among them, since a role only decides the
        prompt.
        """
        if not self.has_pieces:
            return []
        uses = [[use.prompt, list(use.units)] for use in self.uses]
        only_teacher_reads_prompts = bool(self.source_prompts) and not self.student_reads_prompts
        return [uses, only_teacher_reads_prompts]

    def with_length(self, length: int) -> CorpusSettings:
        """The same text in blocks of another length."""
        return self.model_copy(update={"length": length})

    def content(self) -> dict[str, Any]:
        """The settings that decide the content of a built corpus, as plain values for its manifest.

        The mix, streaming and shuffling are not among them. Keys of newer options are only there if the option is set,
        so that they do not change older corpora.
        """
        content: dict[str, Any] = {
            "sources": self.places,
            "unit": self.unit,
            "length": self.length,
            "join": self.join,
            "held_out": self.held_out,
            "held_out_documents": self.held_out_documents,
            "text_column": self.text_column,
            "max_documents": self.max_documents,
            "minimum_tokens": self.minimum_tokens,
        }
        if self.separator is not None:
            content["separator"] = self.separator
        if self.pairs:
            content["pairs"] = True
        if self.cutting:
            content["cutting"] = self.cutting
        if self.text_keys:
            content["text_keys"] = True
        if self.whole_texts:
            content["whole_texts"] = True
        if self.student_length is not None:
            content["student_length"] = self.student_length
        return content
