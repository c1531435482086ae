"""Inference across languages and Chinese tasks on single texts and pairs: XNLI, CMNLI, OCNLI, CSL, and FewCLUE's two.

Sources: XNLI (arXiv 1809.05053), CLUE (arXiv 2004.05986), FewCLUE (arXiv 2107.07498); row counts as the data cards on
the Hub state them. The merged files of FewCLUE have no published count.
"""

from __future__ import annotations

from limbeck.evaluation.tasks.definition import Columns, FileSource, HubSource, SplitSource, TaskDefinition
from limbeck.evaluation.tasks.glue import NLI_LABELS
from limbeck.evaluation.tasks.task import SplitFacts, Task

XNLI_LANGUAGES = ("ar", "bg", "de", "el", "en", "es", "fr", "hi", "ru", "sw", "th", "tr", "ur", "vi", "zh")

_PAIR = Columns("sentence1", "sentence2", id="id")
_KEYWORDS = Columns("keyword", "abst", id="id")


def xnli() -> TaskDefinition:
    """Return XNLI: trained on MNLI, selected on the development sets of all languages together (MiniLM, §4.3)."""
    splits = {"validation": SplitFacts()}
    sources = {"validation": SplitSource(parts=tuple(f"validation.{language}" for language in XNLI_LANGUAGES))}
    for split, stem, rows in (("validation", "dev", 2490), ("test", "test", 5010)):
        for language in XNLI_LANGUAGES:
            name = f"{split}.{language}"
            splits[name] = SplitFacts(rows, language=language)
            hub = HubSource("facebook/xnli", split, Columns("premise", "hypothesis"), language)
            sources[name] = SplitSource(_xnli_files(stem, language), hub)
    task = Task(
        name="xnli",
        title="XNLI",
        group="cross_lingual",
        kind="classification",
        labels=NLI_LABELS,
        metrics=("accuracy",),
        train="mnli:train",
        select="validation",
        scored=tuple(f"test.{language}" for language in XNLI_LANGUAGES),
        splits=splits,
    )
    return TaskDefinition(task, sources, sources["validation"].parts)


def chinese_tasks() -> tuple[TaskDefinition, ...]:
    """Return CLUE's CMNLI, CSL and OCNLI."""
    return (
        _clue("cmnli", "CMNLI", NLI_LABELS, (391783, 12241, 13880), _PAIR),
        _clue("csl", "CSL", ("0", "1"), (20000, 3000, 3000), _KEYWORDS),
        _clue("ocnli", "OCNLI", NLI_LABELS, (50437, 2950, 3000), _PAIR),
    )


def few_chinese_tasks() -> tuple[TaskDefinition, ...]:
    """Return FewCLUE's CSL and OCNLI: all few-shot rows for training, the public test set for the score."""
    return (
        _few_clue("few_csl", "FewCLUE CSL", "csl", ("0", "1"), None, _KEYWORDS),
        _few_clue("few_ocnli", "FewCLUE OCNLI", "ocnli", NLI_LABELS, 2520, _PAIR),
    )


def _xnli_files(stem: str, language: str) -> tuple[FileSource, ...]:
    """One table a language without a header, or the source's own one of all languages."""
    header = ("premise", "hypothesis", "label")
    tables = [f"{stem}-{language}.tsv", f"xnli/{stem}-{language}.tsv"]
    whole = [f"xnli.{stem}.tsv", f"XNLI-1.0/xnli.{stem}.tsv"]
    in_whole = Columns("sentence1", "sentence2", label="gold_label", id="pairID")
    return (
        *(FileSource(path, Columns("premise", "hypothesis"), header) for path in tables),
        *(FileSource(path, in_whole, only={"language": language}) for path in whole),
    )


def _clue(
    name: str, title: str, labels: tuple[str, ...], rows: tuple[int, int, int], columns: Columns
) -> TaskDefinition:
    stems = {"train": ("train",), "validation": ("dev", "validation"), "test": ("test",)}
    on_hub = Columns(columns.text, columns.pair, id="idx")
    sources = {
        split: SplitSource(
            tuple(
                FileSource(f"{folder}/{stem}.json", columns) for folder in (name, f"{name}_public") for stem in names
            ),
            HubSource("clue/clue", split, on_hub, name),
        )
        for split, names in stems.items()
    }
    facts = {
        split: SplitFacts(count, labelled=split != "test", language="zh")
        for split, count in zip(stems, rows, strict=True)
    }
    task = Task(
        name=name,
        title=title,
        group="chinese",
        kind="classification",
        labels=labels,
        metrics=("accuracy",),
        train="train",
        select="validation",
        scored=("validation",),
        predicted=("test",),
        splits=facts,
    )
    return TaskDefinition(task, sources)


def _few_clue(
    name: str, title: str, folder: str, labels: tuple[str, ...], test_rows: int | None, columns: Columns
) -> TaskDefinition:
    files = {"train": "train_few_all", "validation": "dev_few_all", "test": "test_public"}
    task = Task(
        name=name,
        title=title,
        group="chinese",
        kind="classification",
        labels=labels,
        metrics=("accuracy",),
        train="train",
        select="validation",
        scored=("test",),
        splits={split: SplitFacts(test_rows if split == "test" else None, language="zh") for split in files},
    )
    sources = {split: SplitSource((FileSource(f"{folder}/{file}.json", columns),)) for split, file in files.items()}
    return TaskDefinition(task, sources)
