"""The models that teach: loaded from where a recipe says, and opened as the teaching of a stage."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from limbeck.methods.teaching import Teaching
from limbeck.methods.term import Term
from limbeck.models.loading import load_model, model_without_weights
from limbeck.models.vocabulary_rows import cut_rows
from limbeck.recipe.model_plans import TeacherCombination, TeacherInfo
from limbeck.recipe.models import TeacherSpec
from limbeck.recipe.several_teachers import combined_keys, mean_of_scores, members_read, stage_of_member
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.tokenizer_plans import TokenizerPlan
from limbeck.training.teaching.combined import CombinedMember, CombinedTeaching
from limbeck.training.teaching.live import LiveTeaching
from limbeck.training.teaching.stored_outputs import remembering
from limbeck.training.teaching.teacher_dtype import teacher_dtype


def load_teacher_model(spec: TeacherSpec, **options: Any) -> PreTrainedModel:
    """Load the whole model that a recipe names as a teacher.

    Args:
        spec: The recipe's teacher.
        **options: Options of `load_model`.
    """
    return load_model(spec.model, revision=spec.revision, **options)


class TeacherModels:
    """Loads the models that teach a run; every stage takes its own, since it may cut it.

    Args:
        main: The recipe's teacher.
        student_of: Returns the folder of an earlier stage's student, by the stage's title; None where no student of a
            stage teaches.
        piece_ids: Returns the ids of a cut tokenizer's pieces in the whole one, see `RunTokenizers.piece_ids`; None
            where no teacher reads a cut vocabulary.
    """

    def __init__(
        self,
        main: TeacherInfo,
        student_of: Callable[[str], Path] | None = None,
        piece_ids: Callable[[TokenizerPlan], Sequence[int] | None] | None = None,
    ) -> None:
        self._main = main
        self._student_of = student_of
        self._piece_ids = piece_ids

    def load(self, teacher: TeacherInfo | None = None, **options: Any) -> PreTrainedModel:
        """Load a whole model: a teacher with files, or the student of an earlier stage that teaches now.

        Args:
            teacher: The teacher; by default the recipe's.
            **options: Options of `load_model`; of these only `head` matters for a teacher without weights.
        """
        if teacher is None:
            teacher = self._main
        # `stage` is the title of the earlier stage whose student this teacher is. The student is in its folder.
        if teacher.stage is not None:
            assert self._student_of is not None
            return load_model(self._student_of(teacher.stage), **options)
        # Of a teacher whose outputs are stored only the configuration is there. Its modules are made without values.
        if not teacher.has_weights:
            return model_without_weights(teacher.config, options.get("head"))
        return load_teacher_model(teacher.spec, **options)

    def load_for(self, stage: StagePlan, **options: Any) -> PreTrainedModel:
        """Load the teacher of a stage as it reads the stage's text.

        Where it reads the cut vocabulary of its student, it has the rows of these pieces alone.

        Args:
            stage: The stage, whose teacher is one model.
            **options: Options of `load_model`.
        """
        model = self.load(stage.teacher, **options)
        if stage.whole_tokenizer is None:
            return model
        assert self._piece_ids is not None
        piece_ids = self._piece_ids(stage.tokenizer)
        assert piece_ids is not None
        return cut_rows(model, piece_ids)

    def open(self, stage: StagePlan, terms: Sequence[Term]) -> Teaching:
        """Open the teaching of a stage; its teacher model is loaded unless another teaching takes its place.

        Args:
            stage: The stage.
            terms: The terms of all students that it serves.
        """
        teacher = stage.teacher
        if teacher.combination is not None:
            return self._open_several(stage, teacher.combination)
        # A teaching that stands in place of the model, such as stored outputs, was made when the recipe was planned.
        if teacher.teaching is not None:
            return teacher.teaching
        model = self.load_for(stage, dtype=teacher_dtype(stage), head=stage.teacher_head)
        _, teacher_head = stage.sentence_heads()
        live = LiveTeaching(model, terms, pooling=teacher_head, title=teacher.title, sharded=teacher.spec.sharded)
        if teacher.spec.remembers:
            return remembering(live, stage)
        return live

    def _open_several(self, stage: StagePlan, combination: TeacherCombination) -> Teaching:
        """Open the teachings of several teachers as one; those that the stage does not read stay closed."""
        names_read = {name for name, _ in members_read(stage)}
        members = []
        for member in combination.members:
            if member.name in names_read:
                member_stage = stage_of_member(stage, member)
                teaching = self.open(member_stage, member_stage.terms)
                members.append(CombinedMember(teaching, member.weight, member.classes))
        combined_names = {key.name for key in combined_keys(stage.terms, stage.pairing)}
        return CombinedTeaching(
            stage.teacher.facts,
            members,
            combined_names,
            vectors=combination.vectors,
            mean_of=mean_of_scores(combination, stage.pairing),
        )
