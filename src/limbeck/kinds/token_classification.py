"""Classification of words: each word of a sentence has a class, such as a part of speech or the tag of an entity.

The classes are called *tags*. Tags of entities follow a scheme such as BIO (`B-PER`, `I-PER`, `O`), by which tagged
words form entities with a type. Tokenizers split words; the first token of a word stands for the word.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import regex
from numpy.typing import ArrayLike, NDArray

from limbeck.core import IGNORED_LABEL, intervals
from limbeck.core.blocks import counted
from limbeck.corpus.files.file_kinds import PlacedRow
from limbeck.corpus.rows.class_numbers import is_missing
from limbeck.corpus.rows.labelled_rows import WORD_GAP, Label, LabelledRow
from limbeck.corpus.rows.row_kind import RowEncoder
from limbeck.corpus.rows.tags import OUTSIDE, check_tags, entity_tags, inconsistencies, odd_tags, tags_without_part
from limbeck.corpus.source_report import SourceReport
from limbeck.corpus.text.documents import clean_text
from limbeck.corpus.tokens.encoded_rows import TOKEN_TYPES
from limbeck.corpus.tokens.word_windows import NO_WORD, WordEncoder
from limbeck.errors import CorpusError
from limbeck.kinds import class_scores
from limbeck.kinds.beside_teacher import ClassFigures, Disagreements, label_figures
from limbeck.kinds.chance_scores import chance_of_classes
from limbeck.kinds.classification import figures_of_classes, submitted_class
from limbeck.kinds.entity_counts import (
    EntityCounts,
    count_entities,
    count_tags,
    entity_figures,
    scored_words,
    tags_of,
    total_of,
)
from limbeck.kinds.kind import HeldOutRows, HeldOutScore, Kind, LabelTerm, Loss, Metric, Outputs, slices_of
from limbeck.kinds.losses import ClassWeightedLoss
from limbeck.kinds.reading import RowSource
from limbeck.kinds.registry import register_as_kind
from limbeck.kinds.task import Predictions, Submission, Task
from limbeck.kinds.usage import RUN_LOGITS, HeadUsage

# The words of a text whose words are not given: letters and digits with their marks, apostrophes and hyphens between
# them; any other sign is a word by itself, as in CoNLL's files.
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}_]+(?:['’-][\p{L}\p{M}\p{N}_]+)*|[^\s\p{L}\p{M}\p{N}_]")
_SHOWN_CHARACTERS = 40
"""Most characters of foreign text in a message."""
_UNLABELLED = (-1, "-1")
"""Values that data sets have in the place of unknown tags."""
_NOT_SCORED = (IGNORED_LABEL, str(IGNORED_LABEL))
"""Values in the place of the tag of a word that is neither trained on nor scored, as Hugging Face's data sets have."""
# `WordEncoder` does the same to a byte-level tokenizer.
_EXAMPLE_WORDS = """\
words = ["A", "first", "sentence", "."]
splitter = tokenizer.backend_tokenizer.pre_tokenizer
if hasattr(splitter, "add_prefix_space"):
    splitter.add_prefix_space = True  # in training each word was read with a space before it
"""
"""Lines of example code that make words for the tokenizer."""
_FIRST_TOKENS = """\
first_tokens = {}  # the tag of a word is that of its first token
for place, number in enumerate(batch.word_ids()):
    if number is not None:  # a special token is in no word
        first_tokens.setdefault(number, place)
"""
"""Lines of example code that find the tokens whose output is a tag."""


def _gold(rows: Sequence[LabelledRow]) -> NDArray[np.int64]:
    """Return the classes of the words of all rows that are scored."""
    return class_scores.flat([scored_words(tags_of(row), row) for row in rows])


def _predicted(predictions: Predictions, rows: Sequence[LabelledRow]) -> NDArray[np.int64]:
    """Return the predicted classes of the same words."""
    tags_of_rows = cast(Sequence[Sequence[int]], predictions)
    return class_scores.flat([scored_words(tags, row) for tags, row in zip(tags_of_rows, rows, strict=True)])


def _chance_of_words(labels: NDArray[np.int64], classes: int) -> dict[str, float]:
    """Return the share of words with the most frequent tag, by the metric that it is a score of.

    Args:
        labels: The class of each word, `[words]`.
        classes: The number of classes.
    """
    chance = chance_of_classes(labels, classes, positive=None)
    return {name: value for name, value in chance.items() if name == "accuracy"}


def _accuracy(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
    """Share of words with the right class."""
    return class_scores.accuracy(_predicted(predictions, rows), _gold(rows))


def _of_entities(name: Literal["f1_entity", "precision_entity", "recall_entity"]) -> Metric:
    """Return a metric of the entities of all types together."""

    def metric(predictions: Predictions, rows: Sequence[LabelledRow], task: Task) -> float:
        return entity_figures(cast(Any, predictions), rows, task)[name]

    return metric


@register_as_kind()
class TokenClassification(Kind):
    """A class for each word; a prediction is the number of each word's class."""

    name = "token_classification"
    metrics: Mapping[str, Metric] = {
        "f1_entity": _of_entities("f1_entity"),
        "precision_entity": _of_entities("precision_entity"),
        "recall_entity": _of_entities("recall_entity"),
        "accuracy": _accuracy,
    }
    label_type = pa.list_(pa.int64())
    rows_of_words = True
    scoring_types: Mapping[str, pa.DataType] = {"row": pa.int64(), "words": pa.list_(pa.int32())}
    held_out_metric = "accuracy"
    usage = HeadUsage(
        before=_EXAMPLE_WORDS,
        texts="words, is_split_into_words=True",
        torch=_FIRST_TOKENS
        + "labels = output.logits[0].argmax(-1).tolist()\n"
        + "print([(words[number], model.config.id2label[labels[place]]) for number, place in first_tokens.items()])",
        onnx=RUN_LOGITS
        + _FIRST_TOKENS
        + "labels = logits[0].argmax(-1).tolist()\n"
        + "print([(words[number], config.id2label[labels[place]]) for number, place in first_tokens.items()])",
    )

    def check_source(self, source: RowSource) -> None:
        """Refuse classes without names, and tags of entities without a type; note tags that rule out entities."""
        super().check_source(source)
        check_tags(source.labels)
        for tag in odd_tags(source.labels):
            source.report.note("tag that is no part of an entity, so that no entities are scored", tag)
        for tag in tags_without_part(source.labels):
            source.report.note("tag without the part of an entity (B- or I-), so that no entities are scored", tag)

    def read(self, row: PlacedRow, source: RowSource) -> Sequence[LabelledRow]:
        """Return a sentence with the class of each word; nothing for one without words.

        A sentence without labels may also be a text, which is divided into words.
        """
        columns = source.columns
        needed = [columns.tokens]
        if source.labelled:
            needed.append(columns.tags)
        source.require(row, needed)
        words: Any = row.values[columns.tokens]
        if isinstance(words, str) and not source.labelled:
            words = _WORD.findall(words)
        is_list_of_words = isinstance(words, list | tuple) and all(isinstance(word, str) for word in words)
        if not is_list_of_words:
            shown = repr(words)[:_SHOWN_CHARACTERS]
            raise CorpusError(f"{row.where} has no list of words in its column '{columns.tokens}', but {shown}.")
        label = None
        if source.labelled:
            label = _read_tags(row, len(words), source)
            no_word_is_scored = set(label) == {IGNORED_LABEL}
            if no_word_is_scored:
                source.report.note(f"sentence whose tags are all {IGNORED_LABEL}, left out", row.where)
                return []
        # White space within a word would split it. A word of which nothing is left stays, as an empty one, since each
        # tag belongs to the word at its place.
        cleaned_words = [" ".join(clean_text(word).split()) for word in words]
        if not any(cleaned_words):
            source.report.note("sentence without words, left out", row.where)
            return []
        text = WORD_GAP.join(cleaned_words)
        row_id = source.row_id(row, columns.id)
        return [LabelledRow(id=row_id, text=text, label=label, language=source.language)]

    def renumber(self, label: Label, numbers: Sequence[int]) -> Label:
        """Return the classes of the words by their other numbers."""
        renumbered = []
        for number in cast(tuple[int, ...], label):
            is_scored = number != IGNORED_LABEL
            renumbered.append(numbers[number] if is_scored else IGNORED_LABEL)
        return tuple(renumbered)

    def plain_text(self, text: str) -> str:
        """Return the words with spaces between them."""
        return text.replace(WORD_GAP, " ")

    def encoder(self, tokenizer: Any, length: int, stride: int, *, paired: bool) -> RowEncoder:
        """Return what cuts sentences into windows."""
        return WordEncoder(tokenizer, length)

    def encode_for_scoring(
        self, encoder: Any, rows: Sequence[LabelledRow], report: SourceReport, first: int
    ) -> dict[str, Any]:
        """Return the windows of all rows, with the number of their row, and the words that tokens are the first of."""
        windows = encoder.windows([row.text for row in rows], report)
        return {
            "input_ids": [window.input_ids for window in windows],
            TOKEN_TYPES: [window.token_type_ids for window in windows],
            "row": [first + window.sentence for window in windows],
            "words": [window.words for window in windows],
        }

    def loss(self, weights: Sequence[float] | None) -> Loss | None:
        """Return the cross entropy with weights of classes."""
        if weights is None:
            return None
        return ClassWeightedLoss(weights)

    def decode(
        self, outputs: Outputs, rows: Sequence[LabelledRow], task: Task, tokens: Callable[[], Any]
    ) -> Predictions:
        """Return the class of each word; words without a token are outside of entities."""
        items = tokens().select_columns(list(self.scoring_types)).with_format(None)
        windows = ((item["row"], item["words"]) for item in items)
        outside = task.labels.index(OUTSIDE) if OUTSIDE in task.labels else 0
        return decode_tags(rows, windows, outputs[0], missing=outside)

    def chance(self, rows: Sequence[LabelledRow], task: Task) -> dict[str, float]:
        """Return the share of words with the most frequent tag; entities are not found by chance."""
        return _chance_of_words(_gold(rows), len(task.labels))

    def held_out_chance(self, labels: NDArray[Any], rows: HeldOutRows) -> dict[str, float]:
        """Return the share of scored tokens, one for each word, with the most frequent tag."""
        return _chance_of_words(labels.astype(np.int64), len(rows.classes))

    def words(self, prediction: Any, row: LabelledRow, task: Task) -> str:
        """Return the words of entities in a sentence with their tags, such as `Ada/B-PER Lovelace/I-PER`."""
        tagged = []
        for word, number in zip(row.text.split(WORD_GAP), prediction, strict=True):
            if number == IGNORED_LABEL:
                continue
            tag = task.labels[number]
            if tag.upper() != OUTSIDE:
                tagged.append(f"{word}/{tag}")
        if not tagged:
            return "no entity"
        return " ".join(tagged)

    def class_figures(
        self, rows: Sequence[LabelledRow], predictions: Sequence[Predictions], task: Task
    ) -> ClassFigures | None:
        """Return the F1 of each type of entity; where tags mark no entities, that of each tag and their confusion."""
        if entity_tags(task.labels) is None:
            tags_of_models = [_predicted(tags, rows) for tags in predictions]
            return figures_of_classes(_gold(rows), tags_of_models, task.labels)

        # The counts of each model, by the type of entity.
        counts_of_models = [count_entities(cast(Any, tags), rows, task) for tags in predictions]
        entity_types = set().union(*counts_of_models)
        by_label = []
        for entity_type in sorted(entity_types):
            # A type that only one of the models predicts, and no row has, is missing from the other model's counts.
            counts = [counts_by_type.get(entity_type, EntityCounts(0, 0, 0)) for counts_by_type in counts_of_models]
            f1_of_models = [model_counts.figures()["f1_entity"] for model_counts in counts]
            # The models are scored on the same rows, so those that have the type count as many gold entities.
            gold = max(model_counts.gold for model_counts in counts)
            by_label.append(label_figures(entity_type, gold, f1_of_models))
        return ClassFigures(by_label, labels=[], confusion=[])

    def disagreements(
        self,
        rows: Sequence[LabelledRow],
        predictions: tuple[Predictions, Predictions],
        outputs: tuple[Outputs, Outputs],
        task: Task,
    ) -> Disagreements | None:
        """Compare the classes that student and teacher give the words of each sentence.

        The distance, 0 to 1, is the share of words with different classes. `outputs` is not needed: the signature is
        that of all kinds.
        """
        student, teacher = (cast(Sequence[Sequence[int]], tags) for tags in predictions)
        shares = []
        for student_numbers, teacher_numbers in zip(student, teacher, strict=True):
            shares.append(np.mean(np.asarray(student_numbers) != np.asarray(teacher_numbers)))
        distances = np.array(shares)
        return Disagreements(
            distances=distances,
            differ=distances > 0,
            student=[self.words(numbers, row, task) for row, numbers in zip(rows, student, strict=True)],
            teacher=[self.words(numbers, row, task) for row, numbers in zip(rows, teacher, strict=True)],
        )

    def submitted(self, prediction: Any, task: Task, submission: Submission | None) -> str:
        """Return the classes of the words, with spaces between them."""
        return " ".join(submitted_class(number, task, submission) for number in prediction)

    def held_out_labels(self, batch: dict[str, Any]) -> Any:
        """Return the labels of the tokens that have one, which alone are scored."""
        labels = batch.pop("labels")
        batch["scored"] = labels != IGNORED_LABEL
        return labels[batch["scored"]]

    def interval(
        self, metric: str, value: float, task: Task, rows: Sequence[LabelledRow], predictions: Predictions
    ) -> intervals.Interval | None:
        """Return the bootstrap's interval: sentences are drawn with replacement, since their words are not apart."""
        # A single sentence is every draw.
        if len(rows) < 2:
            return None
        tags_of_rows = cast(Sequence[Sequence[int]], predictions)
        if metric == "accuracy":
            right_words = []
            words = []
            for tags, row in zip(tags_of_rows, rows, strict=True):
                gold = _gold([row])
                right_words.append(int((_predicted([tags], [row]) == gold).sum()))
                words.append(len(gold))
            counts_of_words = np.array([right_words, words])  # [2, sentences]

            def accuracy_of(draw: Sequence[int]) -> float:
                right, total = counts_of_words[:, draw].sum(axis=1).tolist()
                return right / total if total else 0.0

            return intervals.of_resampled(accuracy_of, len(rows))

        # The entities of a sentence are found once, and not anew in each draw.
        counts_of_sentences = np.array(
            [total_of(count_entities([tags], [row], task)) for tags, row in zip(tags_of_rows, rows, strict=True)]
        )  # [sentences, 3]

        def figure_of(draw: Sequence[int]) -> float:
            right, predicted, gold = counts_of_sentences[draw].sum(axis=0).tolist()
            return EntityCounts(right, predicted, gold).figures()[metric]

        return intervals.of_resampled(figure_of, len(rows))

    def held_out_predictions(self, logits: Any) -> Any:
        """Return the classes of the scored tokens, `[tokens]`."""
        return logits.argmax(-1)

    def held_out_groups(self, rows: Sequence[Mapping[str, Any]], batch: Mapping[str, Any], first: int) -> Any:
        """Return the number of the row of each scored token, so that entities do not go on from row to row."""
        row_of_token, _ = batch["scored"].nonzero(as_tuple=True)
        return first + row_of_token.numpy()

    def held_out_scores(
        self, predicted: NDArray[Any], labels: NDArray[Any], rows: HeldOutRows
    ) -> Sequence[HeldOutScore]:
        """Return F1, precision and recall of entities; where tags mark no entities, the share of right tags."""
        accuracy = HeldOutScore("accuracy", self.held_out_score(predicted, labels))
        if entity_tags(rows.classes) is None:
            return [accuracy]

        # The token rows hold no words: each scored token stands for its word.
        sentences = slices_of(rows.groups)
        predicted_numbers = [predicted[sentence].tolist() for sentence in sentences]
        gold_numbers = [labels[sentence].tolist() for sentence in sentences]
        figures = total_of(count_tags(predicted_numbers, gold_numbers, rows.classes)).figures()
        scores = [HeldOutScore(name, figures[name]) for name in ("f1_entity", "precision_entity", "recall_entity")]
        return [*scores, accuracy]

    def held_out_intervals(
        self, predicted: NDArray[Any], labels: NDArray[Any], rows: HeldOutRows
    ) -> dict[str, intervals.Interval]:
        """Return the bootstrap's intervals over sentences, whose entities and right tags are counted once."""
        sentences = slices_of(rows.groups)
        if len(sentences) < 2:
            return {}
        counts_of_words = []
        counts_of_entities = []
        has_entities = entity_tags(rows.classes) is not None
        for sentence in sentences:
            predicted_numbers, gold_numbers = predicted[sentence], labels[sentence]
            counts_of_words.append([int((predicted_numbers == gold_numbers).sum()), len(gold_numbers)])
            if has_entities:
                counts = count_tags([predicted_numbers.tolist()], [gold_numbers.tolist()], rows.classes)
                counts_of_entities.append(total_of(counts))
        words = np.array(counts_of_words)  # [sentences, 2]
        entities = np.array(counts_of_entities)  # [sentences, 3], or empty

        def scores_of(draw: Sequence[int]) -> dict[str, float]:
            right, total = words[draw].sum(axis=0).tolist()
            scores = {"accuracy": right / total}
            if has_entities:
                scores |= EntityCounts(*entities[draw].sum(axis=0).tolist()).figures()
            return scores

        return intervals.each_of_resampled(scores_of, len(sentences))

    def held_out_agreement_interval(
        self, student: NDArray[Any], teacher: NDArray[Any], rows: HeldOutRows
    ) -> intervals.Interval | None:
        """Return the interval of the agreement, the main score with the teacher's tags as labels."""
        metric = self.held_out_agreement(student, teacher, rows).metric
        return self.held_out_intervals(student, teacher, rows).get(metric)

    def hard_label(self) -> LabelTerm | None:
        """Return the cross entropy of the first token of each word."""
        return LabelTerm("hard_label_ce", rows="label")

    def soft_label(self) -> LabelTerm:
        """Return the divergence from the teacher's distribution at the first token of each word."""
        return LabelTerm("soft_label_kl", rows="label", has_temperature=True)


def _read_tags(row: PlacedRow, count: int, source: RowSource) -> tuple[int, ...]:
    """Return the number of each word's class; -100 for a word that is not scored.

    Args:
        row: The row of the sentence, with a column of tags.
        count: Words of the sentence.
        source: The source, which knows the classes; its report receives tags that contradict their scheme.

    Raises:
        CorpusError: if there is not one of the classes for each word.
    """
    column = source.columns.tags
    tags: Any = row.values[column]
    is_list = isinstance(tags, list | tuple)
    if not is_list or len(tags) != count:
        shown = counted(len(tags), "tag") if is_list else f"the tags {tags!r}"[:_SHOWN_CHARACTERS]
        raise CorpusError(f"{row.where} has {counted(count, 'word')}, but {shown}: give each word one tag.")

    # A value such as -1 or -100 stands for no tag, unless a class has it as its name.
    class_numbers = source.numbers
    for place, tag in enumerate(tags, start=1):
        stands_for_no_label = tag in _UNLABELLED and tag not in class_numbers
        if is_missing(tag) or stands_for_no_label:
            raise CorpusError(
                f"{row.where} is unlabelled, because the tag of its word {place} is {tag!r}: give the word a tag, "
                "or leave the row out."
            )
    names_of_numbers = row.class_names.get(column, ())
    numbers = []
    for tag in tags:
        is_not_scored = tag in _NOT_SCORED and tag not in class_numbers
        if is_not_scored:
            numbers.append(IGNORED_LABEL)
        else:
            numbers.append(class_numbers.number(tag, row.where, names_of_numbers))

    # Tags that contradict their scheme, such as an entity that goes on without a beginning, are noted and kept.
    known_tags = entity_tags(source.labels)
    if known_tags is not None:
        sentence_tags = [known_tags[number] for number in numbers if number != IGNORED_LABEL]
        for problem, neighbouring_tags in inconsistencies(sentence_tags, known_tags):
            source.report.note(problem, f"{row.where}, {neighbouring_tags}")
    return tuple(numbers)


def decode_tags(
    rows: Sequence[LabelledRow],
    windows: Iterable[tuple[int, Sequence[int]]],
    scores: Sequence[ArrayLike],
    missing: int,
) -> list[list[int]]:
    """Return the class of each word of each row: the class with the highest score at the word's first token.

    Args:
        rows: The sentences.
        windows: For each window, the index of its row, and for each of its tokens the index of the word that begins
            with this token, or `NO_WORD` for a token that begins none.
        scores: For each window, the scores of the classes at its tokens, `[tokens, classes]`; scores of padding at the
            end are ignored.
        missing: The class of words without a token.
    """
    # Every word starts with the class for words without a token, such as those that were cut off.
    classes = []
    for row in rows:
        word_count = row.text.count(WORD_GAP) + 1
        classes.append([missing] * word_count)

    for (row_number, words), token_scores in zip(windows, scores, strict=True):
        best_classes = np.asarray(token_scores).argmax(axis=-1)  # [tokens]
        for token, word in enumerate(words):
            if word != NO_WORD:
                classes[row_number][word] = int(best_classes[token])
    return classes
