"""Text and labelled rows as token rows: sources, the cache, packing, streams and batches.

`sources` open what a string names as documents or labelled rows; `store` keeps them, once; `build` makes token rows of
them by `packing`, `labelled` and `answers`, and opens the result as a `Corpus` or `LabelledCorpus`; `streaming` does
the same while it is trained on; `batches` masks and pads.
"""

from typing import TYPE_CHECKING

from limbeck.core import IGNORED_LABEL, import_when_used
from limbeck.core.kinds import LabelKind

if TYPE_CHECKING:
    from limbeck.corpus.batches import (
        GroupedRows,
        MaskedTokens,
        PadCollator,
        ReplacedTokens,
        mask_id_of,
        padding_share,
        word_ids,
    )
    from limbeck.corpus.build import Corpus, LabelledCorpus, build_corpus, build_labelled_corpus
    from limbeck.corpus.documents import Document
    from limbeck.corpus.mixing import RowMix
    from limbeck.corpus.pieces import UNITS
    from limbeck.corpus.sentences import split_paragraphs, split_sentences
    from limbeck.corpus.settings import (
        Augmentation,
        CorpusSettings,
        LabelledSettings,
        LengthSchedule,
        MixSpec,
    )
    from limbeck.corpus.source_report import SourceReport
    from limbeck.corpus.sources import open_source
    from limbeck.corpus.store import Progress
    from limbeck.corpus.streaming import Lane, StreamedCorpus, open_stream

__getattr__, __dir__ = import_when_used(
    __name__,
    {
        "batches": "GroupedRows MaskedTokens PadCollator ReplacedTokens mask_id_of padding_share word_ids",
        "build": "Corpus LabelledCorpus build_corpus build_labelled_corpus",
        "documents": "Document",
        "pieces": "UNITS",
        "sentences": "split_paragraphs split_sentences",
        "source_report": "SourceReport",
        "mixing": "RowMix",
        "settings": "Augmentation CorpusSettings LabelledSettings LengthSchedule MixSpec",
        "sources": "open_source",
        "store": "Progress",
        "streaming": "Lane StreamedCorpus open_stream",
    },
)

__all__ = [
    "IGNORED_LABEL",
    "UNITS",
    "Augmentation",
    "Corpus",
    "CorpusSettings",
    "Document",
    "GroupedRows",
    "LabelKind",
    "LabelledCorpus",
    "LabelledSettings",
    "Lane",
    "LengthSchedule",
    "MaskedTokens",
    "MixSpec",
    "PadCollator",
    "Progress",
    "ReplacedTokens",
    "RowMix",
    "SourceReport",
    "StreamedCorpus",
    "build_corpus",
    "build_labelled_corpus",
    "mask_id_of",
    "open_source",
    "open_stream",
    "padding_share",
    "split_paragraphs",
    "split_sentences",
    "word_ids",
]
