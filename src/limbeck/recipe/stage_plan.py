"""The plan of a stage: its options resolved for its teacher and its student.

A *term* is one weighted loss between the two models. A *stream* is what a term reads of a model: the hidden states of a
layer, its scores (`logits`), or a sentence vector, `pooled` or finished (`vector`). A *learned map* is a linear layer
from the student's width to the teacher's; one that is *kept* is saved as a part of the student.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from limbeck.core.kinds import kind_of
from limbeck.corpus.rows.classes import ClassCounts, ClassWeights
from limbeck.corpus.settings import CorpusSettings, LabelledSettings
from limbeck.errors import CorpusError, RecipeError
from limbeck.evaluation.tasks.corpus_rows import TaskRows
from limbeck.methods.pairing import Pairing
from limbeck.methods.term import LearnedMap, Term
from limbeck.models.heads import Head
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.sentences import SentencePooling
from limbeck.objectives import OBJECTIVES
from limbeck.recipe.model_plans import StudentPlan, TeacherInfo
from limbeck.recipe.stage_terms import compose_terms, kept_map_of, takes_class_weights
from limbeck.recipe.stages import StageSpec
from limbeck.recipe.tokenizer_plans import TokenizerPlan


@dataclass(frozen=True)
class StagePlan:
    """One stage, with its options resolved for these two models.

    Args:
        spec: The recipe's stage.
        terms: The weighted terms.
        corpus: Its text or rows, and how they are cut; in a schedule of several lengths, those of the last.
        vectors: How its student makes sentence vectors up to the learned map that it keeps, if it has one (see the
            module). A term applies this map as the stage trains; at the end it is saved behind the pooling.
        teacher_vectors: How its teacher makes sentence vectors.
        pairing: The shapes of its two models and the task of its rows, for which the method was composed.
        teacher: The stage's teacher.
        student: The student of this stage alone; None where the stage trains the recipe's student.
        tokenizer: The tokenizer of its student.
        teacher_tokenizer: The tokenizer of its teacher, where it gives other tokens than the student's. None where both
            read the same tokens, and where the teacher reads none: its outputs are known, or no term reads it.
        student_head: The head that its student needs: `masked_lm` or the name of a kind of task. None where the terms
            read only hidden states and vectors.
        teacher_head: The head that its teacher needs, likewise.
        mask_tokens: Share of tokens to mask.
        whole_tokenizer: The tokenizer of a teacher that reads the cut one of its student here, so that both read the
            same tokens; None where no teacher does. See `limbeck.recipe.shared_reading`.
        class_weights: Weights of the classes in hard labels, or None.
        absent: Classes that none of its rows has.
    """

    spec: StageSpec
    terms: list[Term]
    corpus: CorpusSettings | LabelledSettings
    vectors: SentencePooling
    teacher_vectors: SentencePooling
    pairing: Pairing
    teacher: TeacherInfo
    student: StudentPlan | None
    tokenizer: TokenizerPlan
    teacher_tokenizer: TokenizerPlan | None
    student_head: Head | None
    teacher_head: Head | None
    mask_tokens: float
    whole_tokenizer: TokenizerPlan | None = None
    class_weights: ClassWeights | None = None
    absent: tuple[str, ...] = ()

    @property
    def skips_other_texts(self) -> bool:
        """Whether texts are left out that the whole tokenizer of the teacher would cut into other pieces."""
        cut = self.tokenizer.cut
        return self.whole_tokenizer is not None and cut is not None and cut.other_texts == "skip"

    @cached_property
    def corpora(self) -> list[CorpusSettings | LabelledSettings]:
        """The settings of its text, one for each length of its schedule, in the order of training."""
        schedule = self.spec.text.schedule
        if schedule is None:
            return [self.corpus]
        return [self.corpus.with_length(length) for length in schedule.lengths]

    @property
    def development(self) -> TaskRows | None:
        """The development rows of its task, on which both models are scored but not trained; None without any."""
        if not isinstance(self.corpus, LabelledSettings):
            return None
        rows = self.corpus.development
        assert rows is None or isinstance(rows, TaskRows)
        return rows

    @property
    def chooses_step(self) -> bool:
        """Whether measurements of development rows, or else of held-out ones, choose the step whose student is kept."""
        return bool(self.spec.training.get("load_best_model_at_end"))

    @property
    def kept_map(self) -> LearnedMap | None:
        """The learned map that its student keeps behind its pooling, if any."""
        return kept_map_of(self.terms)

    @property
    def student_streams(self) -> set[str]:
        """Names of the streams that its terms read of the student."""
        return {key.name for term in self.terms for key in term.student}

    @property
    def teacher_streams(self) -> set[str]:
        """Names of the streams that its terms read of the teacher."""
        return {key.name for term in self.terms for key in term.teacher}

    @property
    def teaches_vectors(self) -> bool:
        """Whether the student learns finished sentence vectors; its files then have to say how it makes them."""
        return "vector" in self.student_streams

    @property
    def learns_classes(self) -> bool:
        """Whether a term learns the classes that rows are labelled with.

        The task is that of the rows, and its kind says what their labels are.
        """
        reads_labels = any(OBJECTIVES[term.objective].takes_labels for term in self.terms)
        return reads_labels and kind_of(self.pairing.task).has_classes

    @property
    def compares_documents(self) -> bool:
        """Whether a term compares the documents of a query: its unit is then the group of these documents."""
        return any(term.unit == "group" for term in self.terms)

    @property
    def measures_layers(self) -> bool:
        """Whether the layer mapping depends on measurements of the teacher on the text, made as the stage begins."""
        return self.spec.method.get("mapping") == "contribution"

    @property
    def classes(self) -> tuple[str, ...]:
        """The classes that its rows are numbered by; empty where the student's head, named by its kind, has none."""
        if isinstance(self.corpus, LabelledSettings) and kind_of(self.student_head).has_classes:
            return tuple(self.corpus.labels)
        return ()

    def sentence_heads(self) -> tuple[SentenceHead, SentenceHead]:
        """Make the modules that compute the `pooled` and `vector` streams of the student and the teacher.

        These modules end before a learned map. Where the student keeps one, they do not scale vectors to length one:
        that is done behind the map.

        Raises:
            ModelError: for modules whose weights are missing or damaged.
        """
        student_vectors = self.vectors
        if self.kept_map is not None:
            student_vectors = replace(student_vectors, normalize=False)
        return SentenceHead(student_vectors), SentenceHead(self.teacher_vectors)

    def one_class_error(self, counts: ClassCounts) -> CorpusError:
        """The error for rows that are all alike, where their classes are learned."""
        return CorpusError(f"{counts.describe_one()}, so labels teach nothing: add rows of other classes.")

    def single_documents_error(self) -> RecipeError:
        """The error for rows of one document a query, where documents are compared."""
        assert isinstance(self.corpus, LabelledSettings)
        return RecipeError(
            f"Stage '{self.spec.title}': {self.spec.method.get('loss', 'its loss')} compares the documents of a "
            f"query, but no query has two (documents_per_query is {self.corpus.documents_per_query}); give rows "
            "with several documents per query, or use loss: score_mse."
        )

    def with_class_weights(self, weights: Sequence[float]) -> StagePlan:
        """The plan with weights of classes in the terms that read hard labels.

        Args:
            weights: The weight of each class.
        """
        terms = []
        for term in self.terms:
            if takes_class_weights(term):
                terms.append(replace(term, options={**term.options, "class_weights": tuple(weights)}))
            else:
                terms.append(term)
        return replace(self, terms=terms)

    def with_steps(self, steps: int) -> StagePlan:
        """The plan with a number of steps in place of minutes.

        Args:
            steps: The steps.
        """
        training = {name: value for name, value in self.spec.training.items() if name != "max_minutes"}
        spec = self.spec.model_copy(update={"training": {**training, "max_steps": steps}})
        return replace(self, spec=spec)

    def with_layer_cosines(self, cosines: tuple[float, ...]) -> StagePlan:
        """The plan with its terms composed again, for measured layers.

        Args:
            cosines: The mean cosine between the input and the output of each teacher layer.
        """
        pairing = replace(self.pairing, layer_cosines=cosines)
        return replace(self, pairing=pairing, terms=compose_terms(self.spec, pairing, self.spec.title))
