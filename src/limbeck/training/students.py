"""Making a run's students: built, started from their teacher, and settled when training is over."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from limbeck.core.files import atomic_folder
from limbeck.core.permissions import give_ordinary_mode
from limbeck.core.records import Initialisation, LayerLink, Stage, UnreadRows, Untrained
from limbeck.methods.composition import Term
from limbeck.models import blueprint, families, heads, initialise, loading, narrowing, tokenizers
from limbeck.models.quiet import quiet
from limbeck.models.sentence_files import write_sentence_transformers_files
from limbeck.models.sentences import TRAINED_WIDTHS, SentenceHead, SentenceModule, SentencePooling
from limbeck.recipe.model_choices import StudentChoice, TeacherChoice
from limbeck.recipe.stage_plan import StageChoice
from limbeck.training.module import Learned, read_ranges, write_ranges

_NAMED = 20  # Ranges of rows in the record of a run.

# Saving the student: an ordinary transformers folder, whole or not at all.


def never_trained(stages: Sequence[Stage]) -> tuple[list[str], list[str]]:
    """Find the parameters that no stage trained.

    Args:
        stages: The stages' records: `untrained` names what no term reached, `frozen` what the recipe froze.

    Returns:
        Those that some stage left out without being asked to, and those that were only ever frozen; in order.
    """
    if not stages:
        return [], []
    left_out = [{*stage.untrained, *stage.frozen} for stage in stages]
    names = [*stages[0].frozen, *stages[0].untrained]
    never = [name for name in names if all(name in stage for stage in left_out)]
    frozen = {name for name in never if all(name in stage.frozen for stage in stages)}
    return [name for name in never if name not in frozen], [name for name in never if name in frozen]


def describe_layers(terms: Iterable[Term]) -> list[LayerLink]:
    """Say which layers of the student learn from which of the teacher, for the record; 0 is the embedding.

    Args:
        terms: Of a stage.

    Returns:
        An entry a pair of layers, with the names of its terms; terms over outputs alone have no layers.
    """
    found: dict[tuple[tuple[int, ...], tuple[int, ...]], list[str]] = {}
    terms = list(terms)
    for term in terms:
        own, theirs = (
            tuple(sorted({key.layer for key in side if key.kind != "logits"})) for side in (term.student, term.teacher)
        )
        if own and theirs:
            found.setdefault((own, theirs), []).append(term.name)
    aligned = {term.name for term in terms if _aligns_vectors(term)}
    return [
        LayerLink(
            student=list(own), teacher=list(theirs), terms=names, **{"vectors": True} if aligned & {*names} else {}
        )
        for (own, theirs), names in sorted(found.items())
    ]


def _aligns_vectors(term: Term) -> bool:
    """Whether a term compares the sentence vectors that the student will make with the teacher's, text by text.

    Relations of the texts of a batch hold in any space, and a map that is not kept is between the spaces.
    """
    kinds = {key.kind for key in (*term.student, *term.teacher)}
    in_place = term.learned_map is None or term.learned_map.kept
    return bool(term.teacher) and kinds <= {"pooled", "vector"} and not term.batch_coupled and in_place


def never_read(stages: Sequence[Stage], student: PreTrainedModel) -> dict[str, NDArray[np.bool_]]:
    """Find the rows of embedding tables that no stage trained, since no batch read them.

    Args:
        stages: The stages' records; `unread` names the rows.
        student: The student that they trained.

    Returns:
        By kind of table which rows, where there are any; a table that no stage trained at all is left out, and so is
        one that a stage says nothing of.
    """
    left_out = set().union(*never_trained(stages))
    found = {}
    for kind, table in families.embedding_tables(student).items():
        name = f"{table.name}.weight"
        said = [stage.unread.get(name, "") for stage in stages]
        if said and all(said) and name not in left_out:
            found[kind] = np.logical_and.reduce([read_ranges(text, table.module.num_embeddings) for text in said])
    return {kind: rows for kind, rows in found.items() if rows.any()}


def fill_rows(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    rows: Mapping[str, NDArray[np.bool_]],
    start: Mapping[str, Any] | None = None,
) -> list[str]:
    """Give rows of embedding tables the teacher's values, as `initialise_student` does: copied, or projected.

    Args:
        student: Changed in place.
        teacher: The teacher.
        rows: By kind of table which rows.
        start: Keywords of `initialise.find_bases` of a student that was cut by activations; None goes by the words.

    Returns:
        The kinds that were filled: none where the student's embeddings are wider than its teacher's.
    """
    shapes = families.shape_of(student.config), families.shape_of(teacher.config)
    if not rows or narrowing.embedding_mode("auto", *shapes) == "random":
        return []
    if start is None:
        basis = narrowing.find_bases(families.base_model(teacher), *shapes).embedding
    else:
        basis = initialise.find_bases(student, teacher, **start).embedding
    own, theirs = families.embedding_tables(student), families.embedding_tables(teacher)
    filled = [kind for kind in rows if kind in theirs and len(theirs[kind].module.weight) == len(rows[kind])]
    with torch.no_grad():
        for kind in filled:
            weight, chosen = own[kind].module.weight, np.flatnonzero(rows[kind])
            values = theirs[kind].module.weight[chosen]
            weight[chosen] = (values if basis is None else values.double() @ basis).to(weight)
    return filled


def fill_from_teacher(
    student: PreTrainedModel, teacher: PreTrainedModel, names: Iterable[str], terms: Iterable[Term]
) -> list[str]:
    """Give parameters that no stage trained the teacher's values, where shapes allow.

    A parameter of a student's block gets the value from the teacher layer that a term maps to that block.

    Args:
        student: Changed in place.
        teacher: The whole teacher, not a truncated one.
        names: Parameters of the student.
        terms: The terms of all stages.

    Returns:
        The names that were filled.
    """
    teacher_layer = {
        key.layer: other.layer
        for term in terms
        if len(term.student) == len(term.teacher)
        for key, other in zip(term.student, term.teacher, strict=True)
        if key.layer > 0
    }
    own, theirs = dict(student.named_parameters()), dict(families.base_model(teacher).named_parameters())
    block = re.compile(rf"^({re.escape(families.family_of(student.config).blocks)}\.)(\d+)(?=\.)")
    prefix = student.base_model_prefix + "."

    def mapped(match: re.Match[str]) -> str:
        # Of a block that no term maps the number is -1, which no layer has.
        return f"{match[1]}{teacher_layer.get(int(match[2]) + 1, 0) - 1}"

    filled = []
    for name in names:
        # A student with a head has its Transformer one level down.
        source = theirs.get(block.sub(mapped, name.removeprefix(prefix)))
        if source is not None and source.shape == own[name].shape:
            with torch.no_grad():
                own[name].copy_(source)
            filled.append(name)
    return filled


def add_pooler(
    student: PreTrainedModel, teacher: PreTrainedModel | None, seed: int
) -> tuple[PreTrainedModel, list[str]]:
    """Give a student the pooler that its class has by default, so that loading it leaves nothing at random.

    No stage reads a pooler, so students are built without.

    Args:
        student: The student; left as it is.
        teacher: With its pooler, which is copied; None, or another width, for one drawn at random.
        seed: Decides the random values.

    Returns:
        The student to save, and the names of the pooler's parameters; the student itself where there is no pooler.
    """
    if not families.pooler_option(type(student)):
        return student, []
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        whole = type(student)._from_config(type(student.config)(**student.config.to_dict()), dtype=torch.float32)
    names = [name for name, _ in whole.named_parameters() if name.startswith("pooler.")]
    own = dict(student.named_parameters())
    theirs = dict(teacher.named_parameters()) if teacher is not None else {}
    with torch.no_grad():
        for name, parameter in whole.named_parameters():
            source = own.get(name, theirs.get(name))
            if source is not None and source.shape == parameter.shape:
                parameter.copy_(source)
    return whole.eval(), names


def save_student(
    folder: Path,
    student: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    choice: StudentChoice,
    *,
    sentence: SentencePooling | None,
    learned: Learned | None = None,
    widths: Sequence[int] = (),
) -> None:
    """Write the student's folder.

    Args:
        folder: Appears complete; one that is there is replaced.
        student: The student, without taps.
        tokenizer: The teacher's, which is the student's too.
        choice: The student, whose dropout rates go into the configuration; those of training are the run's.
        sentence: How sentence vectors are made, if the student makes any.
        learned: What the stage learned that taught them, of which the student may keep a map.
        widths: Below the whole, to which they were trained to be cut.
    """
    names = families.family_of(choice.config).fields.dropouts
    trained = {name: getattr(student.config, name) for name in names}
    with atomic_folder(folder) as partial:
        if learned is not None and sentence is not None and (kept := write_kept_map(partial, learned)) is not None:
            sentence = replace(sentence, modules=(kept,))
        if sentence is not None and widths:  # The whole may be asked for too.
            setattr(student.config, TRAINED_WIDTHS, [sentence.width(student.config.hidden_size), *widths])
        try:
            for name in names:
                setattr(student.config, name, getattr(choice.config, name))
            with quiet():
                student.save_pretrained(str(partial))
        finally:
            for name, value in trained.items():
                setattr(student.config, name, value)
        give_ordinary_mode(partial.glob("*.safetensors"))
        tokenizers.save_tokenizer(partial, tokenizer, student, None if sentence is None else sentence.max_length)
        if sentence is not None:
            write_sentence_transformers_files(
                partial,
                width=student.config.hidden_size,
                pooling=sentence.pooling,
                normalize=sentence.normalize,
                max_length=sentence.max_length,
                like=sentence,
            )


def write_kept_map(folder: Path, learned: Learned) -> SentenceModule | None:
    """Write the map that a student keeps, as a module of sentence-transformers; None where it keeps none.

    Args:
        folder: The student's.
        learned: Of the stage that taught its vectors.
    """
    term = next((term for term in learned[0] if term.learned_map is not None and term.learned_map.kept), None)
    if term is None or term.learned_map is None:
        return None
    place, spec = folder / "2_Dense", term.learned_map
    place.mkdir()
    parts = ("weight", "bias") if spec.bias else ("weight",)
    weights = {f"linear.{part}": learned[1][f"maps.{term.map_name}.{part}"].float().contiguous() for part in parts}
    save_file(weights, place / "model.safetensors", metadata={"format": "pt"})
    give_ordinary_mode(place.glob("*.safetensors"))
    return SentenceModule("Dense", place, (spec.inputs, spec.outputs), spec.bias, "Identity")


def finished_head(sentence: SentencePooling, learned: Learned | None) -> SentenceHead:
    """Return what makes the sentence vectors of a student that is in memory, with the map that it keeps, if any.

    Args:
        sentence: How they are made, but for that map.
        learned: Of the stage that taught them finished vectors, if one did.
    """
    if learned is None:
        return SentenceHead(sentence)
    with TemporaryDirectory() as folder:
        kept = write_kept_map(Path(folder), learned)
        return SentenceHead(sentence if kept is None else replace(sentence, modules=(kept,)))


LoadTeacher = Callable[..., PreTrainedModel]
"""Loads the whole teacher; keywords as in `load_model`."""


def make_student(
    choice: StudentChoice,
    head: heads.Head | None,
    teacher_head: heads.Head | None,
    load_teacher: LoadTeacher,
    seed: int,
) -> tuple[PreTrainedModel, Initialisation]:
    """Build a student and give it its start.

    Args:
        choice: The student.
        head: The head it gets.
        teacher_head: The head that its teacher is known to have, from which the student's starts where shapes allow.
        load_teacher: Loads the teacher that it is initialised from.
        seed: Decides what is random.

    Returns:
        The student, and its start for the record.
    """
    config = type(choice.config)(**choice.config.to_dict())
    if choice.spec.dropout is not None:
        for name in families.family_of(config).fields.dropouts:
            setattr(config, name, choice.spec.dropout)
    student = blueprint.build_student(config, seed=seed, head=head)
    start = choice.spec.initialise
    if start.checkpoint is not None:
        loading.load_checkpoint(student, start.checkpoint)
        return student, Initialisation.read({"checkpoint": start.checkpoint})
    teacher = load_teacher(head=teacher_head)
    report = initialise.initialise_student(
        student,
        teacher,
        layers=start.layers,
        embeddings=start.embeddings,
        narrow_by=start.narrow_by or "weights",
        seed=seed,
    )
    if head is None:
        return student, report
    copied = heads.copy_head(student, teacher) if teacher_head == head and report.embeddings != "random" else []
    return student, Initialisation.read({**report.to_dict(), "head": {"kind": head, "copied": copied}})


@dataclass(frozen=True)
class StudentMaker:
    """Makes a student, and settles it when training is over.

    Args:
        choice: The student.
        head: The head it gets.
        stages: The stages that train it.
        source: The teacher that it starts from.
        load_teacher: Loads that teacher.
        seed: Decides what is random.
    """

    choice: StudentChoice
    head: heads.Head | None
    stages: Sequence[StageChoice]
    source: TeacherChoice
    load_teacher: LoadTeacher
    seed: int

    def make(self) -> tuple[PreTrainedModel, Initialisation]:
        """Build the student; its head starts from its teacher's where a stage reads that. See `make_student`."""
        known = self.head in {stage.teacher_head for stage in self.stages if stage.teacher is self.source}
        return make_student(self.choice, self.head, self.head if known else None, self.load_teacher, self.seed)

    def finish(self, student: PreTrainedModel, records: Sequence[Stage]) -> tuple[PreTrainedModel, Untrained]:
        """Settle what parameters hold that no stage trained, and say so.

        Args:
            student: The student, trained.
            records: Of its stages.

        Returns:
            The student to save, and what is untrained in it for the record.
        """
        spec = self.choice.spec
        names, frozen = never_trained(records)
        rows = never_read(records, student)
        filled: list[str] = []
        kinds: list[str] = []
        if (names or rows) and spec.untrained == "teacher":
            terms = [term for stage in self.stages for term in stage.terms]
            source = self.load_teacher()
            filled = fill_from_teacher(student, source, names, terms)
            start = spec.initialise
            by_activations = start.narrow_by == "activations" and start.layers != "random" and start.checkpoint is None
            how = start.model_dump(include={"layers", "embeddings", "narrow_by"}) | {"seed": self.seed}
            kinds = fill_rows(student, source, rows, how if by_activations else None)
        copies_pooler = spec.untrained == "teacher" or spec.initialise.layers != "random"
        same_width = self.choice.shape.hidden == self.source.shape.hidden
        teacher = self.load_teacher(pooler=True) if copies_pooler and same_width else None
        whole, pooler = add_pooler(student, teacher, self.seed)
        return whole, Untrained(
            policy=spec.untrained,
            names=[*names, *pooler],
            from_teacher=[*filled, *(name for name in pooler if teacher is not None and name in teacher.state_dict())],
            frozen=frozen,
            rows=[_describe_rows(student, kind, found, kind in kinds) for kind, found in rows.items()],
        )


def _describe_rows(student: PreTrainedModel, kind: str, rows: NDArray[np.bool_], from_teacher: bool) -> UnreadRows:
    """Describe rows for the record: their number, and the first of them."""
    named = write_ranges(rows).split(",")
    return UnreadRows(
        table=f"{families.embedding_tables(student)[kind].name}.weight",
        kind=kind,
        rows=len(rows),
        unread=int(rows.sum()),
        first=", ".join(named[:_NAMED]) + (", …" if len(named) > _NAMED else ""),
        from_teacher=from_teacher,
    )
