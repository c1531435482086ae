"""Contradictions within a stage: its training, its steps, its text and its models.

A term is *batch-coupled* if its loss relates the samples of a batch to each other, so that it cannot be summed over
parts of a batch. A *place* is the path of a stage in the recipe, such as `stages.0`, which messages begin with.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limbeck.corpus.settings import CorpusSettings, CorpusSpec, LabelledSettings
from limbeck.errors import CorpusError, RecipeError
from limbeck.methods.pairing import Pairing
from limbeck.methods.registry import usual_terms
from limbeck.methods.term import Term
from limbeck.models.families import segment_count
from limbeck.models.streams import OF_SENTENCES, StreamKey
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo
from limbeck.recipe.stage_terms import learn_labels
from limbeck.recipe.stages import StageSpec
from limbeck.recipe.training_arguments import build_arguments, check_training

MASKED_SHARE = 0.15
"""Share of tokens that BERT masks (arXiv 1810.04805, section 3.1)."""
_STREAMS_APART = (*OF_SENTENCES, "cls")
"""Streams that models give of a whole text whatever its tokens are; `cls` is the vector of the first token."""
_LEAST_MASKED = 0.01
"""Least share of tokens to mask that is no typing mistake."""


def check_stage_training(stage: StageSpec, place: str, seed: int, terms: Sequence[Term], *, evaluates: bool) -> None:
    """Refuse arguments that no training has, and terms that cannot be accumulated or split.

    Args:
        stage: The stage.
        place: Where it stands in the recipe.
        seed: The seed of the run.
        terms: The terms of the stage.
        evaluates: Whether there is held-out text.

    Raises:
        RecipeError: for an argument or a term that is refused.
    """
    training = check_training(stage.training, f"{place}.training")
    try:
        # Built for its error alone: some arguments are refused only by the class of transformers.
        build_arguments(training, output="", seed=seed, evaluates=evaluates)
    except RecipeError as error:
        raise RecipeError(f"{place}.{error}") from None

    coupled = [term.name for term in terms if term.batch_coupled]
    if coupled and training.get("gradient_accumulation_steps", 1) > 1:
        raise RecipeError(
            f"{place}: the term '{coupled[0]}' relates the samples of a batch, so it cannot be accumulated over "
            "several batches; set training.gradient_accumulation_steps to 1 and raise per_device_train_batch_size, "
            "or give the term the weight 0."
        )
    # With `on_out_of_memory: split` a batch that does not fit is run in pieces, whose losses are summed. That would
    # change terms that relate samples of different pieces.
    if stage.guard.on_out_of_memory != "split":
        return
    grouped = [term.name for term in terms if term.unit == "group"]
    if grouped:
        raise RecipeError(
            f"{place}: the term '{grouped[0]}' compares the documents of a query, but splitting a batch that does "
            "not fit would separate them; leave out guard.on_out_of_memory, and lower per_device_train_batch_size."
        )
    if coupled:
        raise RecipeError(
            f"{place}: the term '{coupled[0]}' relates the samples of a batch, so a batch that does not fit cannot "
            "be split; leave out guard.on_out_of_memory and lower per_device_train_batch_size, or give the term "
            "the weight 0."
        )


def check_steps(stage: StageSpec, place: str, corpus: CorpusSpec) -> None:
    """Refuse a stage on a stream or with a schedule of lengths whose number of steps cannot be told.

    A *stream* is text without a known end. A *schedule* (`text.lengths`) trains on several lengths in turn, each for a
    number of epochs or a share of the steps.
    """
    # As in transformers, `max_steps` below 1 means that epochs are counted instead.
    steps: Any = stage.training.get("max_steps", -1)
    has_steps = isinstance(steps, int) and steps > 0
    has_minutes = "max_minutes" in stage.training
    if corpus.streaming and not has_steps and not has_minutes:
        raise RecipeError(
            f"{place}.training.max_steps is missing, but a stream has no end and no epochs; give the number of "
            "steps to train."
        )
    schedule = stage.text.schedule
    if schedule is None:
        return
    if has_minutes:
        raise RecipeError(
            f"{place}.training.max_minutes cannot be combined with text.lengths, because steps of different "
            "lengths take different times; give max_steps in its place, or leave text.lengths out."
        )
    if corpus.task is not None:
        raise RecipeError(
            f"{place}.text.lengths applies only to text without labels, because labelled rows stay whole; leave it out."
        )
    if schedule.in_epochs:
        if corpus.streaming:
            raise RecipeError(
                f"{place}.text.lengths is given in epochs, but a streamed text has none; give shares of max_steps "
                "in their place, such as 0.5."
            )
        if "num_train_epochs" in stage.training:
            raise RecipeError(f"{place}.training.num_train_epochs follows from text.lengths; leave it out.")
        return
    if not has_steps:
        raise RecipeError(
            f"{place}.training.max_steps is missing, but text.lengths gives shares of it; give max_steps, or give "
            "each length a number of epochs, such as 1 epoch."
        )
    try:
        schedule.ends(steps)
    except CorpusError as error:
        raise RecipeError(f"{place}.text.lengths: {error}") from None


def check_text_fits(
    stage: StageSpec,
    place: str,
    settings: CorpusSettings | LabelledSettings,
    teacher: TeacherInfo,
    student: StudentPlan,
) -> None:
    """Refuse pairs for models that do not tell segments apart, and texts longer than a model has positions.

    Args:
        stage: The stage.
        place: Where it stands in the recipe.
        settings: The settings of its text.
        teacher: Its teacher.
        student: Its student.

    Raises:
        RecipeError: for pairs or lengths that one of the models does not take.
    """
    model_by_owner: dict[str, TeacherInfo | StudentPlan] = {}
    # Of a teacher without files it is not known what it reads, and its outputs are there already.
    if teacher.is_known_model:
        model_by_owner["teacher"] = teacher
    model_by_owner["student"] = student
    corpus_place = f"{place}.corpus" if stage.corpus else "corpus"
    if isinstance(settings, CorpusSettings) and settings.pairs:
        pairs_place = f"{place}.text" if stage.text.pairs else corpus_place
        for owner, model in model_by_owner.items():
            segments = segment_count(model.config)
            if segments < 2:
                raise RecipeError(
                    f"{pairs_place}.pairs: a pair has two segments, but the {owner}, a {model.config.model_type}, "
                    f"cannot tell segments apart (type_vocab_size {segments}); leave 'pairs' out, or choose a "
                    "teacher that can, such as BERT."
                )

    # The key that gives the length, for the message.
    length_place = f"{corpus_place}.length"
    for key in ("lengths", "length"):
        if getattr(stage.text, key):
            length_place = f"{place}.text.{key}"
            break
    # A student that reads other tokens than its teacher has a length of its own.
    length_by_owner = {"teacher": settings.length, "student": settings.student_length or settings.length}
    for owner, model in model_by_owner.items():
        length = length_by_owner[owner]
        positions = model.shape.positions
        if positions is not None and length > positions:
            raise RecipeError(
                f"{length_place} {length} is longer than the {owner}'s {positions} positions; use {positions} or less."
            )


def check_text_level(terms: Sequence[Term], pairing: Pairing, place: str) -> None:
    """Refuse terms on tokens or layers, for a teacher whose outputs are stored: a store has those of whole texts.

    Args:
        terms: The terms of a stage.
        pairing: Its models, and the task of its corpus.
        place: Where the stage stands in the recipe.

    Raises:
        RecipeError: for the first such term, with those that would work.
    """
    _check_of_texts(terms, pairing, place, streams=OF_SENTENCES, reason="only outputs of whole texts are stored")


def check_terms_apart(terms: Sequence[Term], pairing: Pairing, place: str, difference: str) -> None:
    """Refuse terms that compare tokens, for a student that reads other tokens than its teacher.

    Args:
        terms: The terms of a stage.
        pairing: Its models, and the task of its corpus.
        place: Where the stage stands in the recipe.
        difference: The first difference of their tokens.

    Raises:
        RecipeError: for the first such term, with the methods that would work.
    """
    # The difference is a sentence, which stands here within another one: its first letter is made small.
    difference_in_sentence = difference[:1].lower() + difference[1:]
    reason = f"the student reads other tokens than its teacher ({difference_in_sentence})"
    _check_of_texts(terms, pairing, place, _STREAMS_APART, reason=reason)


def compare_tokens(terms: Sequence[Term], pairing: Pairing) -> bool:
    """Whether some terms compare tokens or layers, for which both models have to read the same tokens.

    Args:
        terms: The terms of a stage.
        pairing: Its models, and the task of its corpus.
    """
    return any(_keys_of_tokens(term, pairing, _STREAMS_APART) for term in terms)


def _check_of_texts(
    terms: Sequence[Term], pairing: Pairing, place: str, streams: Sequence[str], *, reason: str
) -> None:
    """Refuse terms on other streams of the teacher than those of whole texts.

    Args:
        terms: The terms of a stage.
        pairing: Its models, and the task of its corpus.
        place: Where the stage stands in the recipe.
        streams: Names of streams of whole texts. Scores are such a stream too where rows are scored as a whole.
        reason: Why other terms cannot be computed, for the message.
    """
    # The names of the terms on whole texts, and the first of the other terms with the stream for which it is refused.
    names_of_texts: list[str] = []
    refused_term: Term | None = None
    refused_key: StreamKey | None = None
    for term in terms:
        keys_of_tokens = _keys_of_tokens(term, pairing, streams)
        if keys_of_tokens and refused_term is None:
            refused_term = term
            refused_key = keys_of_tokens[0]
        elif term.teacher and not keys_of_tokens:
            names_of_texts.append(term.name)
    if refused_term is None:
        return

    if names_of_texts:
        way_out = f"give such terms the weight 0; these would work: {', '.join(names_of_texts)}"
    else:
        methods = _methods_of_texts(pairing, streams)
        way_out = f"choose a method on whole texts: {', '.join(methods)}"
        if not methods:
            way_out = "choose a method on sentence vectors or on the scores of texts, and a corpus for it"
    raise RecipeError(
        f"{place}: the term '{refused_term.name}' reads {refused_key} of the teacher, which belongs to tokens or "
        f"layers, but {reason}; {way_out}."
    )


def _keys_of_tokens(term: Term, pairing: Pairing, streams: Sequence[str]) -> list[StreamKey]:
    """Return the streams of the teacher that a term reads and that are not of whole texts."""
    # Scores are of a whole text, except for those of its words (tagging) and of answers in it.
    has_scores_of_texts = pairing.has_labels and not pairing.of_tokens and pairing.label != "span"
    keys = []
    for key in term.teacher:
        is_score_of_text = key.name == "logits" and has_scores_of_texts
        if key.name not in streams and not is_score_of_text:
            keys.append(key)
    return keys


def _methods_of_texts(pairing: Pairing, streams: Sequence[str]) -> list[str]:
    """Return the methods whose terms are all on whole texts, with the options that they have by default."""
    names = []
    for name, terms in usual_terms(pairing):
        reads_teacher = any(term.teacher for term in terms)
        if reads_teacher and not any(_keys_of_tokens(term, pairing, streams) for term in terms):
            names.append(name)
    return names


def check_text_apart(stage: StageSpec, place: str, settings: CorpusSettings | LabelledSettings) -> None:
    """Refuse changes of tokens, and blocks that are no texts, for a student that reads other tokens than its teacher.

    Args:
        stage: The stage.
        place: Where it stands in the recipe.
        settings: The settings of its text.

    Raises:
        RecipeError: for what the teacher would not read as the student does.
    """
    for key in ("replace_tokens", "mask_tokens"):
        if getattr(stage.augment, key):
            raise RecipeError(
                f"{place}.augment.{key} changes the student's tokens, but its teacher reads other tokens of the "
                "same text, which would stay as they are; leave it out."
            )
    if not isinstance(settings, CorpusSettings):
        return
    for key in ("join", "pairs", "streaming"):
        if getattr(settings, key):
            raise RecipeError(
                f"{place}: {key} cuts text by the tokens of one model, but student and teacher have different "
                f"tokenizers; leave {key} out."
            )


def check_student_length(settings: CorpusSettings | LabelledSettings, place: str, *, reads_apart: bool) -> None:
    """Refuse a length of the student's own for a student that reads its teacher's tokens.

    Args:
        settings: The settings of a stage's text.
        place: Where the stage stands in the recipe.
        reads_apart: Whether the student reads other tokens than its teacher.

    Raises:
        RecipeError: for such a length.
    """
    if settings.student_length is not None and not reads_apart:
        raise RecipeError(
            f"{place}: student_length {settings.student_length} applies only to a student whose tokenizer differs "
            "from its teacher's; give 'length' in its place."
        )


def check_text_unchanged(stage: StageSpec, place: str, settings: CorpusSettings | LabelledSettings, title: str) -> None:
    """Refuse rows that are no texts as they were given, for a teacher that knows its outputs by their texts.

    Args:
        stage: The stage.
        place: Where it stands in the recipe.
        settings: The settings of its text.
        title: The name of its teacher's outputs.

    Raises:
        RecipeError: for text that is changed while it is read, joined into blocks, or has no end.
    """
    for key in ("replace_tokens", "mask_tokens"):
        if getattr(stage.augment, key):
            raise RecipeError(
                f"{place}.augment.{key} changes the text while it is read, but {title} can teach only unchanged "
                "texts; leave it out."
            )
    if not isinstance(settings, CorpusSettings):
        return
    for key in ("join", "pairs"):
        if getattr(settings, key):
            raise RecipeError(
                f"{place}: '{key}' joins texts into blocks, but {title} can teach only single texts; leave '{key}' out."
            )
    if settings.streaming:
        raise RecipeError(
            f"{place}: a stream has no end, so limbeck cannot check that {title} can teach all of its texts; leave "
            "out corpus.streaming."
        )


def masked_share(stage: StageSpec, terms: Sequence[Term], pairing: Pairing, place: str) -> float:
    """The share of tokens to mask: the stage's own, or else BERT's where a term reads masked positions, or else 0.

    Raises:
        RecipeError: for labelled rows that are masked, and for a share of 0 where a term reads masked positions.
    """
    key = f"{place}.augment.mask_tokens"
    share = stage.augment.mask_tokens
    if pairing.has_labels:
        _check_rows_stay(stage, terms, place)
        return 0.0

    # On text without labels, the labels that a term counts are the masked tokens.
    reads_masked = any(term.unit == "label" for term in terms)
    if share is None:
        return MASKED_SHARE if reads_masked else 0.0
    if 0 < share < _LEAST_MASKED:
        raise RecipeError(
            f"{key} {share} would mask almost no tokens; use {_LEAST_MASKED} or more (BERT masks {MASKED_SHARE}), or 0."
        )
    if share == 0 and reads_masked:
        raise RecipeError(
            f"{key} is 0, but this method reads masked positions; leave {key} out, or set positions: all and a "
            "weight of 0 for the hard labels."
        )
    return share


def _check_rows_stay(stage: StageSpec, terms: Sequence[Term], place: str) -> None:
    """Refuse changes of the tokens of labelled rows."""
    if stage.augment.mask_tokens:
        raise RecipeError(f"{place}.augment.mask_tokens applies only to text without labels; leave it out.")
    if stage.augment.replace_tokens and learn_labels(terms):
        raise RecipeError(
            f"{place}.augment.replace_tokens would change what a row says, but this method also learns the row's "
            "label; leave it out, or set the weight of the hard labels to 0."
        )
