"""Several teachers of one student: what is known of them together, and of each where a stage reads it alone.

A *member* is one of the teachers. Together they give the *combined* outputs: sentence vectors, and scores of whole
texts. Outputs of tokens and layers are those of the one member that a stage names as `layers_from`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from limbeck.core.kinds import KINDS
from limbeck.corpus.settings import CorpusSettings, LabelledSettings
from limbeck.errors import RecipeError
from limbeck.methods.pairing import Pairing
from limbeck.methods.term import Term
from limbeck.models.heads import head_of
from limbeck.models.sentence_reader import check_pooling_named
from limbeck.models.sentences import SentencePooling, finished_pooling
from limbeck.models.streams import OF_OUTPUT, OF_SENTENCES, StreamKey
from limbeck.recipe.model_plans import TeacherCombination, TeacherInfo, TeacherMember, plan_teacher
from limbeck.recipe.models import CombineSpec, MemberSpec, TeacherSpec
from limbeck.recipe.schema import Recipe
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.tokenizer_plans import read_alike

_ROLES = (None, "query", "document")
"""Roles of texts, each with a prompt of its own; None for texts without a role."""


def plan_recipe_teacher(recipe: Recipe) -> TeacherInfo:
    """Plan the teacher of a recipe, or all of its teachers as one.

    Raises:
        LimbeckError: for a teacher that cannot be read, and for teachers that do not go together.
    """
    if recipe.teachers is None:
        return plan_teacher(recipe.teacher)
    members = []
    for name, spec in recipe.teachers.items():
        teacher = plan_teacher(_without_weight(spec))
        members.append(TeacherMember(name, weight=spec.weight, teacher=teacher))
    _check_read_alike(members)

    combine = CombineSpec() if recipe.combine is None else recipe.combine
    labels = _common_labels(members)
    if labels:
        members = [_with_classes(member, labels) for member in members]
    width = _combined_width(members, combine)
    combination = TeacherCombination(
        members=tuple(members), vectors=combine.vectors, width=width, scores=combine.scores, labels=labels
    )

    # The other facts are those of one teacher: the first whose model is known, from which the student starts.
    first = _first_with_a_model(members)
    # Teachers that run read the tokens of the batch, and all have the same vocabulary. Where there are only stored
    # outputs, texts are cut by the tokenizer of the first.
    tokenizer = first.tokenizer
    running_members = [member for member in members if member.teacher.is_read]
    if running_members:
        tokenizer = running_members[0].teacher.tokenizer
    sentence = _combined_sentence(first.sentence, width)
    return replace(first, tokenizer=tokenizer, sentence=sentence, combination=combination)


def _first_with_a_model(members: Sequence[TeacherMember]) -> TeacherInfo:
    """Return the first teacher whose model is known, from which the student starts; the first of all without any."""
    for member in members:
        if member.teacher.is_known_model:
            return member.teacher
    return members[0].teacher


def _without_weight(spec: MemberSpec) -> TeacherSpec:
    """Return the keys of a member without its weight."""
    return TeacherSpec.model_validate(spec.model_dump(exclude_unset=True, exclude={"weight"}))


def _check_read_alike(members: Sequence[TeacherMember]) -> None:
    """Refuse models that read other tokens or prompts than the others; stored outputs are found by prompt and text.

    Raises:
        RecipeError: for another vocabulary, and for other prompts.
    """
    models = [member for member in members if member.teacher.is_read]
    for member in models[1:]:
        assert models[0].teacher.tokenizer is not None
        assert member.teacher.tokenizer is not None
        if not read_alike(models[0].teacher.tokenizer, member.teacher.tokenizer):
            raise RecipeError(
                f"teachers.{member.name} '{member.teacher.title}' has a different vocabulary from "
                f"'{models[0].teacher.title}', whose tokens all models read; store its outputs by "
                f"`limbeck teach RECIPE --teacher {member.teacher.spec.model} --output FOLDER`, and give "
                f"teachers.{member.name} as {{stored: FOLDER}}, or choose another teacher."
            )
    for member in members[1:]:
        _check_same_prompts(members[0], member)


def _check_same_prompts(first: TeacherMember, member: TeacherMember) -> None:
    """Refuse a teacher that reads other prompts than the first."""
    for role in _ROLES:
        prompt = _prompt_of(member.teacher.sentence, role)
        first_prompt = _prompt_of(first.teacher.sentence, role)
        if prompt != first_prompt:
            raise RecipeError(
                f"Two teachers have different prompts, which stand before each text: teachers.{member.name} "
                f"'{member.teacher.title}' has {prompt!r}, and the first teacher '{first.teacher.title}' has "
                f"{first_prompt!r}; choose teachers with the same prompts."
            )


def _prompt_of(sentence: SentencePooling | None, role: str | None) -> str:
    """The prompt of texts of a role; empty without one."""
    return "" if sentence is None else sentence.prompt(role)


def _common_labels(members: Sequence[TeacherMember]) -> tuple[str, ...]:
    """Return the classes of all teachers in the order of the first; empty where one of them gives no scores.

    Raises:
        RecipeError: for classes of other names.
    """
    labels_of_members = [_labels_of(member.teacher) for member in members]
    if not all(labels_of_members):
        return ()
    first = labels_of_members[0]
    for member, labels in zip(members, labels_of_members, strict=True):
        if sorted(labels) != sorted(first):
            raise RecipeError(
                f"teachers.{member.name} '{member.teacher.title}' has the classes {', '.join(labels)}, but the "
                f"first teacher has {', '.join(first)}; rename the classes with teachers.{member.name}.classes so "
                "that they are the same."
            )
    return first


def _labels_of(teacher: TeacherInfo) -> tuple[str, ...]:
    """Return the classes of a teacher that gives scores of whole texts; empty for one that gives none."""
    if teacher.is_read:
        # A model without a head for a task has class names too, which are those of its library.
        return teacher.labels if head_of(teacher.config) in KINDS else ()
    return teacher.labels if "logits" in teacher.facts.widths else ()


def _with_classes(member: TeacherMember, labels: Sequence[str]) -> TeacherMember:
    """Return a member with the order in which its scores are read, so that they are of the given classes."""
    labels_of_member = _labels_of(member.teacher)
    return replace(member, classes=tuple(labels_of_member.index(label) for label in labels))


def _combined_width(members: Sequence[TeacherMember], combine: CombineSpec) -> int | None:
    """Return the width of the combined vectors; None where stored outputs have none.

    Raises:
        RecipeError: for more numbers than all teachers have together.
    """
    widths = [_vector_width(member.teacher) for member in members]
    known_widths = [width for width in widths if width is not None]
    if len(known_widths) < len(widths):
        return None
    # The vectors of the others are mapped to the first's, and then averaged.
    if combine.vectors == "averaged":
        return known_widths[0]
    width = known_widths[0] if combine.width is None else combine.width
    if width > sum(known_widths):
        parts = " + ".join(str(part) for part in known_widths)
        raise RecipeError(
            f"combine.width {width} is more than all teachers' vectors have together ({parts}); use a smaller "
            "number, or leave combine.width out."
        )
    return width


def _vector_width(teacher: TeacherInfo) -> int | None:
    """Return the width of a teacher's finished vectors; None for stored outputs without any."""
    if not teacher.is_read:
        return teacher.facts.widths.get("vector")
    return finished_pooling(teacher.sentence).width(teacher.shape.hidden)


def _combined_sentence(first: SentencePooling | None, width: int | None) -> SentencePooling | None:
    """Return how combined vectors are made, as far as the student follows it: pooling, length one and prompts."""
    if width is None:
        return None
    sentence = finished_pooling(first)
    # A pooling of several parts, joined by `+`, would stand for vectors of several times the width.
    first_part, *_ = sentence.pooling.split("+")
    return replace(sentence, pooling=first_part, modules=(), normalize=True, truncate_dim=None)


def with_layers_of(teacher: TeacherInfo, layers_from: str | None) -> TeacherInfo:
    """Return the teachers of a stage that reads the layers of one of them.

    Args:
        teacher: The recipe's teacher.
        layers_from: The name of that one. The teachers stay as they are where it is None, and where the recipe has one
            teacher alone.
    """
    if teacher.combination is None or layers_from is None:
        return teacher
    combination = replace(teacher.combination, layers_from=layers_from)
    return replace(teacher, combination=combination)


def check_combined(terms: Sequence[Term], pairing: Pairing, teacher: TeacherInfo, place: str) -> None:
    """Refuse terms that several teachers cannot be combined for.

    Args:
        terms: The terms of a stage.
        pairing: Its models, and the task of its corpus.
        teacher: Its teachers.
        place: Where the stage stands in the recipe.

    Raises:
        RecipeError: for outputs of tokens without a teacher that is named for them, for a mean of probabilities where
            scores are no probabilities, and for vectors and layers of different widths.
    """
    combination = teacher.combination
    if combination is None:
        return
    combined = combined_keys(terms, pairing)
    # The one teacher whose tokens and layers are read, if the stage names one.
    layers_member = combination.of_layers
    if layers_member is None:
        _check_all_combined(terms, combined, teacher, place)
    elif not layers_member.teacher.is_read:
        raise RecipeError(
            f"{place}.layers_from '{layers_member.name}': {layers_member.teacher.facts.title} have no layers; name a "
            "teacher that is a model."
        )

    combined_names = {key.name for key in combined}
    averages_probabilities = "logits" in combined_names and combination.scores == "probabilities"
    if averages_probabilities and not _has_probabilities(pairing):
        raise RecipeError(
            f"'combine.scores: probabilities' needs scores that sum to 1, but those of {pairing.task} do not; set "
            "combine.scores: logits."
        )

    reads_vectors = bool(combined_names & set(OF_SENTENCES))
    if not reads_vectors:
        return
    for member in teacher.members:
        if member.is_read and member.sentence is None:
            check_pooling_named(member.spec.model)
    if layers_member is None:
        return
    hidden = layers_member.teacher.shape.hidden
    if hidden != combination.width:
        raise RecipeError(
            f"{place}: the combined vectors have {combination.width} numbers, but the layers of "
            f"'{layers_member.name}' have {hidden}; a stage that reads both needs equal widths: set combine.width: "
            f"{hidden}, or split the stage into two."
        )


def _check_all_combined(
    terms: Sequence[Term], combined: Collection[StreamKey], teacher: TeacherInfo, place: str
) -> None:
    """Refuse streams that teachers do not give together, in a stage that names no teacher for them."""
    for term in terms:
        for key in term.teacher:
            if key not in combined:
                raise RecipeError(
                    f"{place}: the term '{term.name}' reads {key} of tokens or layers, for which teachers are not "
                    f"combined; {teacher.facts.way_out}."
                )


def check_combined_text(settings: CorpusSettings | LabelledSettings, teacher: TeacherInfo, place: str) -> None:
    """Refuse a stream for several teachers: how their vectors are combined is found in a sample of the text.

    Args:
        settings: The settings of a stage's text.
        teacher: Its teachers.
        place: Where the stage stands in the recipe.

    Raises:
        RecipeError: for a stream.
    """
    if teacher.combination is None or not isinstance(settings, CorpusSettings):
        return
    if settings.streaming:
        raise RecipeError(
            f"{place}: combining several teachers needs a sample of the whole text, which a stream does not have; "
            "leave out corpus.streaming."
        )


def check_all_read(stages: Sequence[StagePlan], teacher: TeacherInfo) -> None:
    """Refuse a teacher that no term of any stage reads.

    Args:
        stages: All stages.
        teacher: The recipe's teachers.

    Raises:
        RecipeError: naming the first.
    """
    if teacher.combination is None or not stages:
        return
    names_read: set[str] = set()
    for stage in stages:
        names_read.update(name for name, _ in members_read(stage))
    for member in teacher.combination.members:
        if member.name not in names_read:
            layer_names = ", ".join(sorted(names_read))
            raise RecipeError(
                f"No term reads the teacher '{member.name}': stages read only layers of {layer_names}. Leave that "
                "teacher out, or add a stage on sentence vectors or scores of texts, which all teachers give "
                "together."
            )


def combined_keys(terms: Sequence[Term], pairing: Pairing) -> set[StreamKey]:
    """The streams that terms read of all teachers together: sentence vectors, and scores of whole texts.

    Args:
        terms: The terms.
        pairing: The models, and the task of the corpus.
    """
    names = set(OF_SENTENCES)
    has_scores_of_texts = pairing.has_labels and not pairing.of_tokens and pairing.label != "span"
    if has_scores_of_texts:
        names.add("logits")
    return {key for term in terms for key in term.teacher if key.name in names}


def mean_of_scores(combination: TeacherCombination, pairing: Pairing) -> Literal["probabilities", "logits"]:
    """What the mean of the teachers' scores is of: their probabilities, or the scores (`logits`) themselves."""
    if combination.scores is not None:
        return combination.scores
    return "probabilities" if _has_probabilities(pairing) else "logits"


def _has_probabilities(pairing: Pairing) -> bool:
    """Whether the scores of a row are of classes of which one is right."""
    return pairing.task == "classification"


def members_read(stage: StagePlan) -> list[tuple[str, list[str]]]:
    """List the teachers that a stage of several teachers reads, and the outputs that it reads of each.

    Returns:
        For each teacher that is read, its name in the recipe and the names of its outputs, such as `hidden` or
        `vector`. The list is empty for a stage with one teacher.
    """
    combination = stage.teacher.combination
    if combination is None:
        return []
    # Outputs of whole texts are read of every teacher and combined. All others are read of the one teacher that the
    # stage names as `layers_from`, if it names one.
    combined_names = {key.name for key in combined_keys(stage.terms, stage.pairing)}
    all_names = stage.teacher_streams
    members = []
    for member in combination.members:
        names = set(combined_names)
        if member.name == combination.layers_from:
            names |= all_names
        if names:
            members.append((member.name, sorted(names)))
    return members


def stage_of_member(stage: StagePlan, member: TeacherMember) -> StagePlan:
    """Return the stage as if one of its teachers taught alone, with the terms that read this teacher.

    Args:
        stage: The stage of several teachers.
        member: One of them.
    """
    combination = stage.teacher.combination
    assert combination is not None
    combined = combined_keys(stage.terms, stage.pairing)
    has_layers_of_stage = member.name == combination.layers_from
    # The layer under which the member's finished vectors and scores are known.
    output_layer = member.teacher.facts.output_layer
    terms = []
    for term in stage.terms:
        reads_combined = not combined.isdisjoint(term.teacher)
        if reads_combined:
            # In place of a combined stream the term reads the one that this member puts into it.
            own_keys = tuple(_key_of_member(key, output_layer) for key in term.teacher)
            terms.append(replace(term, teacher=own_keys))
        elif has_layers_of_stage:
            # The term reads no combined stream. Layers and outputs of tokens come from one of the teachers alone.
            terms.append(term)
    vectors = finished_pooling(member.teacher.sentence)
    return replace(stage, teacher=member.teacher, terms=terms, teacher_vectors=vectors)


def _key_of_member(key: StreamKey, layer: int) -> StreamKey:
    """Return the stream of a member that a combined stream is made of: finished vectors, also for pooled ones.

    Args:
        key: The combined stream.
        layer: The member's layer of outputs.
    """
    assert key.name in OF_OUTPUT
    name = "vector" if key.name == "pooled" else key.name
    return StreamKey(name, layer)
