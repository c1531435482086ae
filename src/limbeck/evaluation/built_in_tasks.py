"""GLUE: nine tasks and the diagnostic set, in the layout of its zip and on the Hub.

Source: GLUE (arXiv 1804.07461); row counts as its data card on the Hub states them. Rows of QQP's zip that lack fields
are left out, as the Hub does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from limbeck.evaluation.task import (
    Columns,
    FileSource,
    HubSource,
    SplitFacts,
    SplitSource,
    Task,
    TaskDefinition,
    TaskKind,
)

HUB_NAME = "nyu-mll/glue"
NLI_LABELS = ("entailment", "neutral", "contradiction")
_FILES = {"train": ("train",), "validation": ("dev", "validation"), "test": ("test",)}

GLUE_SUBMISSIONS: dict[tuple[str, str], tuple[str, bool]] = {
    ("cola", "test"): ("CoLA.tsv", False),
    ("sst2", "test"): ("SST-2.tsv", False),
    ("mrpc", "test"): ("MRPC.tsv", False),
    ("qqp", "test"): ("QQP.tsv", False),
    ("stsb", "test"): ("STS-B.tsv", False),
    ("mnli", "test_matched"): ("MNLI-m.tsv", True),
    ("mnli", "test_mismatched"): ("MNLI-mm.tsv", True),
    ("qnli", "test"): ("QNLI.tsv", True),
    ("rte", "test"): ("RTE.tsv", True),
    ("wnli", "test"): ("WNLI.tsv", False),
    ("ax", "test"): ("AX.tsv", True),
}
"""Task and split to the file that the leaderboard asks for, and whether it holds class names rather than numbers."""


def glue_tasks() -> tuple[TaskDefinition, ...]:
    """Return the tasks, in the order of GLUE's own tables."""
    pair = Columns("sentence1", "sentence2", id="index")
    return (
        _cola(),
        _plain(
            "sst2",
            "SST-2",
            ("accuracy",),
            (67349, 872, 1821),
            Columns("sentence", id="index"),
            Columns("sentence", id="idx"),
            labels=("negative", "positive"),
        ),
        _plain(
            "mrpc",
            "MRPC",
            ("accuracy", "f1"),
            (3668, 408, 1725),
            Columns("#1 String", "#2 String", label="Quality", id="index"),
            Columns("sentence1", "sentence2", id="idx"),
            labels=("not_equivalent", "equivalent"),
        ),
        _plain(
            "qqp",
            "QQP",
            ("accuracy", "f1"),
            (363846, 40430, 390965),
            Columns("question1", "question2", label="is_duplicate", id="id"),
            Columns("question1", "question2", id="idx"),
            labels=("not_duplicate", "duplicate"),
        ),
        _plain(
            "stsb",
            "STS-B",
            ("pearson", "spearman"),
            (5749, 1500, 1379),
            Columns("sentence1", "sentence2", label="score", id="index"),
            Columns("sentence1", "sentence2", id="idx"),
            kind="regression",
        ),
        _mnli(),
        _plain(
            "qnli",
            "QNLI",
            ("accuracy",),
            (104743, 5463, 5463),
            Columns("question", "sentence", id="index"),
            Columns("question", "sentence", id="idx"),
            labels=("entailment", "not_entailment"),
        ),
        _plain(
            "rte",
            "RTE",
            ("accuracy",),
            (2490, 277, 3000),
            pair,
            Columns("sentence1", "sentence2", id="idx"),
            labels=("entailment", "not_entailment"),
        ),
        _plain(
            "wnli",
            "WNLI",
            ("accuracy",),
            (635, 71, 146),
            pair,
            Columns("sentence1", "sentence2", id="idx"),
            labels=("not_entailment", "entailment"),
        ),
        _ax(),
    )


def glue_files(folders: tuple[str, ...], stems: tuple[str, ...], columns: Columns) -> tuple[FileSource, ...]:
    """Return every name that a GLUE table may have: each folder with each stem."""
    return tuple(FileSource(f"{folder}/{stem}.tsv", columns) for folder in folders for stem in stems)


def _folders(name: str, title: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys((title, name, title.replace("-", ""))))


def _facts(rows: tuple[int, int, int]) -> dict[str, SplitFacts]:
    train, validation, test = rows
    return {
        "train": SplitFacts(train),
        "validation": SplitFacts(validation),
        "test": SplitFacts(test, labelled=False),
    }


def _plain(
    name: str,
    title: str,
    metrics: tuple[str, ...],
    rows: tuple[int, int, int],
    in_files: Columns,
    on_hub: Columns,
    *,
    labels: tuple[str, ...] = (),
    kind: TaskKind = "classification",
    headers: Mapping[str, tuple[str, ...]] | None = None,
) -> TaskDefinition:
    """A task of three splits, whose files have one set of columns and whose Hub copy another."""
    sources = {}
    for split, stems in _FILES.items():
        header = (headers or {}).get(split, ())
        files = glue_files(_folders(name, title), stems, in_files)
        files = tuple(FileSource(file.path, file.columns, header) for file in files)
        sources[split] = SplitSource(files, HubSource(HUB_NAME, split, on_hub, name))
    task = Task(
        name=name,
        title=title,
        group="glue",
        kind=kind,
        labels=labels,
        metrics=metrics,
        train="train",
        select="validation",
        scored=("validation",),
        predicted=("test",),
        splits=_facts(rows),
    )
    return TaskDefinition(task, sources)


def _cola() -> TaskDefinition:
    header = ("source", "label", "original_label", "sentence")
    return _plain(
        "cola",
        "CoLA",
        ("matthews",),
        (8551, 1043, 1063),
        Columns("sentence", id="index"),
        Columns("sentence", id="idx"),
        labels=("unacceptable", "acceptable"),
        headers={"train": header, "validation": header},
    )


def _mnli() -> TaskDefinition:
    in_files = Columns("sentence1", "sentence2", label="gold_label", id="index")
    on_hub = Columns("premise", "hypothesis", id="idx")
    stems = {
        "train": ("train",),
        "validation_matched": ("dev_matched", "validation_matched"),
        "validation_mismatched": ("dev_mismatched", "validation_mismatched"),
        "test_matched": ("test_matched",),
        "test_mismatched": ("test_mismatched",),
    }
    rows = (392702, 9815, 9832, 9796, 9847)
    task = Task(
        name="mnli",
        title="MNLI",
        group="glue",
        kind="classification",
        labels=NLI_LABELS,
        metrics=("accuracy",),
        train="train",
        select="validation_matched",
        scored=("validation_matched", "validation_mismatched"),
        predicted=("test_matched", "test_mismatched"),
        splits={
            split: SplitFacts(count, labelled=not split.startswith("test"))
            for split, count in zip(stems, rows, strict=True)
        },
    )
    sources = {
        split: SplitSource(
            glue_files(_folders("mnli", "MNLI"), names, in_files), HubSource(HUB_NAME, split, on_hub, "mnli")
        )
        for split, names in stems.items()
    }
    return TaskDefinition(task, sources)


def _ax() -> TaskDefinition:
    files = glue_files(
        ("AX", "ax", "diagnostic"), ("diagnostic", "AX", "test"), Columns("sentence1", "sentence2", id="index")
    )
    task = Task(
        name="ax",
        title="AX",
        group="glue",
        kind="classification",
        labels=NLI_LABELS,
        metrics=("matthews",),
        train="mnli:train",
        select="mnli:validation_matched",
        scored=(),
        predicted=("test",),
        splits={"test": SplitFacts(1104, labelled=False)},
    )
    hub = HubSource(HUB_NAME, "test", Columns("premise", "hypothesis", id="idx"), "ax")
    return TaskDefinition(task, {"test": SplitSource(files, hub)})


# Inference across languages and Chinese tasks on single texts and pairs: XNLI, CMNLI, OCNLI, CSL, and FewCLUE's two.
#
# Sources: XNLI (arXiv 1809.05053), CLUE (arXiv 2004.05986), FewCLUE (arXiv 2107.07498); row counts as the data cards
# on the Hub state them. The merged files of FewCLUE have no published count.


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


# Extractive question answering: SQuAD, MLQA, XQuAD and CMRC 2018, all in SQuAD's JSON.
#
# Sources: SQuAD (arXiv 1606.05250 and 1806.03822), MLQA (arXiv 1910.07475, table 2), XQuAD (arXiv 1910.11856), CMRC
# 2018 (arXiv 1810.07366); row counts as the papers and the data cards on the Hub state them.


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


# Similarity of sentence vectors, without fine-tuning: STS-B and SICK-R.
#
# Sources: STS benchmark (arXiv 1708.00055), SICK (LREC 2014, Marelli et al.).


_STS_HEADER = ("genre", "file", "year", "number", "score", "sentence1", "sentence2")


def similarity_tasks() -> tuple[TaskDefinition, ...]:
    """Return STS-B and SICK-R; both are scored on their test sets, or, where those are not there, on what is."""
    return _stsb(), _sick()


def _stsb() -> TaskDefinition:
    columns = Columns("sentence1", "sentence2", label="score")
    sources = {}
    for split, stem in (("validation", "dev"), ("test", "test")):
        own = tuple(
            FileSource(path, columns, _STS_HEADER) for path in (f"sts-{stem}.csv", f"stsbenchmark/sts-{stem}.csv")
        )
        # GLUE keeps the scores of the test set to itself.
        glue = glue_files(("STS-B", "stsb"), ("dev", "validation"), columns) if split == "validation" else ()
        sources[split] = SplitSource((*own, *glue), HubSource("sentence-transformers/stsb", split, columns))
    task = Task(
        name="stsb_cosine",
        title="STS-B (cosine)",
        group="similarity",
        kind="similarity",
        metrics=("spearman", "pearson"),
        train=None,
        select=None,
        scored=("test",),
        splits={"validation": SplitFacts(1500), "test": SplitFacts(1379)},
    )
    return TaskDefinition(task, sources, ("validation",))


def _sick() -> TaskDefinition:
    columns = Columns("sentence_A", "sentence_B", label="relatedness_score", id="pair_ID")
    on_hub = Columns("sentence_A", "sentence_B", label="relatedness_score", id="id")
    # The Hub's copy has fewer rows than the source.
    files = {
        "train": (4500, 4439, ("SICK_train.txt",)),
        "validation": (500, 495, ("SICK_trial.txt",)),
        "test": (4927, 4906, ("SICK_test_annotated.txt", "SICK_test.txt")),
    }
    sources = {
        split: SplitSource(
            tuple(FileSource(name, columns) for name in names),
            HubSource("RobZamp/sick", split, on_hub, revision="refs/convert/parquet", published_rows=hub_rows),
        )
        for split, (_, hub_rows, names) in files.items()
    }
    task = Task(
        name="sick_cosine",
        title="SICK-R (cosine)",
        group="similarity",
        kind="similarity",
        metrics=("spearman", "pearson"),
        train=None,
        select=None,
        scored=("test",),
        splits={split: SplitFacts(rows) for split, (rows, _, _) in files.items()},
    )
    return TaskDefinition(task, sources, ("validation", "train"))
