"""Whether stages that read the same files hold out the same documents of them.

The student is measured on the documents that the first stage holds out, and each stage measures its loss on those that
it holds out itself. Neither may be among the documents that another stage trains on.
"""

from __future__ import annotations

from collections.abc import Sequence

from limbeck.corpus.messages import safe_name
from limbeck.corpus.settings import CorpusSettings, LabelledSettings
from limbeck.errors import RecipeError
from limbeck.recipe.stage_plan import StagePlan

_KEYS = ("held_out", "separator")
"""Keys that decide which documents of a file are held out: the share, and what a document is."""


def check_splits(stages: Sequence[StagePlan]) -> None:
    """Refuse a stage that trains on what another stage holds out of the same files.

    Whether a document is held out is decided by a hash of its text and by the share that is held out. So stages that
    read a file by the same keys agree, and those with different shares do not.

    Args:
        stages: The stages, in their order.

    Raises:
        RecipeError: for the first two stages that do not agree.
    """
    for index, stage in enumerate(stages):
        for earlier_index, earlier in enumerate(stages[:index]):
            key = _different_key(earlier, stage)
            if key is None:
                continue
            source = _shared_source(earlier.corpus, stage.corpus)
            if source is None:
                continue
            raise RecipeError(
                f"stages.{earlier_index} ('{earlier.spec.title}', {key}: {_value(earlier, key)}) and stages.{index} "
                f"('{stage.spec.title}', {key}: {_value(stage, key)}) both read '{safe_name(source)}', so that one of "
                "them would train on documents that the other holds out; give the corpora of both stages the same "
                f"{key}."
            )


def _different_key(first: StagePlan, second: StagePlan) -> str | None:
    """The first key by which two stages are split differently; None where they are split alike."""
    # Rows are split in another way than text, and development rows take the place of held-out ones.
    if isinstance(first.corpus, CorpusSettings) != isinstance(second.corpus, CorpusSettings):
        return None
    if first.development is not None or second.development is not None:
        return None
    for key in _KEYS:
        if getattr(first.corpus, key, None) != getattr(second.corpus, key, None):
            return key
    return None


def _shared_source(first: CorpusSettings | LabelledSettings, second: CorpusSettings | LabelledSettings) -> str | None:
    """The first source of the second text with a file that the first text has too; None where there is none."""
    # It imports what reads files.
    from limbeck.corpus.sources.named_sources import places_of_files

    files_of_first: set[str] = set()
    for source in first.places:
        files_of_first |= places_of_files(source)
    for source in second.places:
        if source in first.places or files_of_first & places_of_files(source):
            return source
    return None


def _value(stage: StagePlan, key: str) -> str:
    """The value of a key of a stage's corpus, in words."""
    value = getattr(stage.corpus, key)
    return "not given" if value is None else f"{value}"
