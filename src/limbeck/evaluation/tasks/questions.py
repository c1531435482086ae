"""Extractive question answering: SQuAD, MLQA, XQuAD and CMRC 2018, all in SQuAD's JSON.

Sources: SQuAD (arXiv 1606.05250 and 1806.03822), MLQA (arXiv 1910.07475, table 2), XQuAD (arXiv 1910.11856),
CMRC 2018 (arXiv 1810.07366); row counts as the papers and the data cards on the Hub state them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from limbeck.evaluation.tasks.definition import Columns, FileSource, HubSource, SplitSource, TaskDefinition
from limbeck.evaluation.tasks.task import SplitFacts, Task

QUESTION_COLUMNS = Columns("context", "question", label=None, id="id")

MLQA_LANGUAGES = ("en", "es", "de", "ar", "hi", "vi", "zh")
XQUAD_LANGUAGES = ("ar", "de", "el", "en", "es", "hi", "ro", "ru", "th", "tr", "vi", "zh")

# Questions of a pair of languages, whichever of the two the context is in: (development, test).
# fmt: off
_MLQA_ROWS: Mapping[str, tuple[int, int]] = {
    "ar ar": (517, 5335), "de de": (512, 4517), "en en": (1148, 11590), "es es": (500, 5253),
    "hi hi": (507, 4918), "vi vi": (511, 5495), "zh zh": (504, 5137),
    "ar en": (517, 5335), "de en": (512, 4517), "en es": (500, 5253), "en hi": (507, 4918),
    "en vi": (511, 5495), "en zh": (504, 5137), "ar de": (207, 1649), "ar es": (161, 1978),
    "ar hi": (186, 1831), "ar vi": (163, 2047), "ar zh": (188, 1912), "de es": (196, 1776),
    "de hi": (163, 1430), "de vi": (182, 1675), "de zh": (190, 1621), "es hi": (187, 1723),
    "es vi": (189, 2018), "es zh": (161, 1947), "hi vi": (177, 1947), "hi zh": (189, 1767), "vi zh": (184, 1943),
}
# fmt: on


def question_tasks() -> tuple[TaskDefinition, ...]:
    """Return the English tasks: SQuAD 1.1 and 2.0."""
    return _squad("squad", "SQuAD 1.1", "1.1", (87599, 10570)), _squad("squad2", "SQuAD 2.0", "2.0", (130319, 11873))


def cross_lingual_question_tasks() -> tuple[TaskDefinition, ...]:
    """Return MLQA and XQuAD, both trained on SQuAD 1.1."""
    return _mlqa(), _xquad()


def cmrc2018() -> TaskDefinition:
    """Return CMRC 2018; its main metric is the one that CLUE ranks by."""
    splits = {
        "train": SplitFacts(10142, language="zh"),
        "validation": SplitFacts(3219, language="zh"),
        "trial": SplitFacts(1002, language="zh"),
        "test": SplitFacts(2000, labelled=False, language="zh"),
    }
    stems = {"train": ("train",), "validation": ("dev", "validation"), "trial": ("trial",), "test": ("test_2k", "test")}
    sources = {
        split: SplitSource(
            _json(
                name.format(stem=stem) for stem in names for name in ("cmrc2018_{stem}.json", "cmrc2018/{stem}.json")
            ),
            HubSource("clue/clue", split, QUESTION_COLUMNS, "cmrc2018"),
        )
        for split, names in stems.items()
    }
    task = Task(
        name="cmrc2018",
        title="CMRC 2018",
        group="chinese",
        kind="question_answering",
        metrics=("exact_match", "f1_answer"),
        train="train",
        select="validation",
        scored=("validation",),
        predicted=("test",),
        splits=splits,
    )
    return TaskDefinition(task, sources)


def _json(paths: Iterable[str]) -> tuple[FileSource, ...]:
    return tuple(FileSource(path, QUESTION_COLUMNS) for path in paths)


def _squad(name: str, title: str, version: str, rows: tuple[int, int]) -> TaskDefinition:
    hub = "rajpurkar/squad" if version == "1.1" else "rajpurkar/squad_v2"
    sources = {}
    for split, stems in {"train": ("train",), "validation": ("dev", "validation")}.items():
        names = [f"{stem}-v{version}.json" for stem in stems] + [f"v{version}-{stem}.json" for stem in stems]
        sources[split] = SplitSource(_json(names), HubSource(hub, split, QUESTION_COLUMNS))
    task = Task(
        name=name,
        title=title,
        group="qa",
        kind="question_answering",
        metrics=("f1_answer", "exact_match"),
        train="train",
        select="validation",
        scored=("validation",),
        splits={"train": SplitFacts(rows[0]), "validation": SplitFacts(rows[1])},
        answerable_only=version == "1.1",
    )
    return TaskDefinition(task, sources)


def _mlqa() -> TaskDefinition:
    splits, sources = {}, {}
    for split, stem, place in (("validation", "dev", 0), ("test", "test", 1)):
        for context in MLQA_LANGUAGES:
            for question in MLQA_LANGUAGES:
                name = f"{split}.{context}.{question}"
                rows = _MLQA_ROWS[" ".join(sorted((context, question)))][place]
                splits[name] = SplitFacts(rows, language=context)
                file = f"{stem}-context-{context}-question-{question}.json"
                # The data set is a script, which `datasets` no longer runs; this branch holds its tables.
                hub = HubSource(
                    "facebook/mlqa",
                    split,
                    QUESTION_COLUMNS,
                    f"mlqa.{context}.{question}",
                    revision="refs/convert/parquet",
                )
                sources[name] = SplitSource(_json((file, f"{stem}/{file}", f"MLQA_V1/{stem}/{file}")), hub)
    task = Task(
        name="mlqa",
        title="MLQA",
        group="cross_lingual",
        kind="question_answering",
        metrics=("f1_answer", "exact_match"),
        train="squad:train",
        select="validation.en.en",
        scored=tuple(f"test.{language}.{language}" for language in MLQA_LANGUAGES),
        splits=splits,
    )
    second_choice = tuple(f"validation.{language}.{language}" for language in MLQA_LANGUAGES)
    return TaskDefinition(task, sources, second_choice)


def _xquad() -> TaskDefinition:
    splits, sources = {}, {}
    for language in XQUAD_LANGUAGES:
        name = f"validation.{language}"
        splits[name] = SplitFacts(1190, language=language)
        hub = HubSource("google/xquad", "validation", QUESTION_COLUMNS, f"xquad.{language}")
        sources[name] = SplitSource(_json((f"xquad.{language}.json",)), hub)
    task = Task(
        name="xquad",
        title="XQuAD",
        group="cross_lingual",
        kind="question_answering",
        metrics=("f1_answer", "exact_match"),
        train="squad:train",
        select="squad:validation",
        scored=tuple(splits),
        splits=splits,
    )
    return TaskDefinition(task, sources)
