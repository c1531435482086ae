"""`RunTokenizers`: the tokenizers of a run's models, each loaded or trained once."""

from functools import cached_property

from transformers import PreTrainedTokenizerBase

from limbeck import corpus as texts
from limbeck.errors import RecipeError
from limbeck.kinds.registry import KINDS
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vocabularies import check_fits_model
from limbeck.models.weight_files import fetch_weights
from limbeck.models.wordpieces import read_wordpieces
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.tokenizer_plans import TokenizerPlan


class RunTokenizers:
    """Loads or trains the tokenizers of a run's models, each when it is first asked for.

    Args:
        plan: The plan of the run.
    """

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._loaded: dict[TokenizerPlan, PreTrainedTokenizerBase] = {}

    @cached_property
    def student(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the recipe's student, and of its teacher where both read the same tokens."""
        return self.load(self._plan.student_plan.tokenizer)

    @cached_property
    def teacher(self) -> PreTrainedTokenizerBase:
        """The tokenizer of the recipe's teacher; the student's for a teacher without files."""
        return self.load(self._plan.teacher_info.tokenizer or self._plan.student_plan.tokenizer)

    def of_stage(self, stage: StagePlan) -> texts.Tokenizers:
        """The tokenizers of the student and the teacher of a stage."""
        student = self.load(stage.tokenizer)
        if stage.teacher_tokenizer is None:
            return texts.Tokenizers(student)
        return texts.Tokenizers(student, self.load(stage.teacher_tokenizer))

    def load(self, plan: TokenizerPlan) -> PreTrainedTokenizerBase:
        """Load a tokenizer, or train it on the text of the first stage whose student has it.

        Raises:
            LimbeckError: for a tokenizer that cannot be read, and a text that is too small for its vocabulary.
        """
        if plan not in self._loaded:
            if plan.trained_words:
                self._loaded[plan] = self._train(plan)
            else:
                self._loaded[plan] = load_tokenizer(plan.model, revision=plan.revision)
        return self._loaded[plan]

    def _train(self, plan: TokenizerPlan) -> PreTrainedTokenizerBase:
        """Train a tokenizer, or read it from limbeck's cache."""
        settings = self._text_of(plan)
        kind = KINDS[settings.task] if isinstance(settings, texts.LabelledSettings) else None
        like = None if plan.like is None else self.load(plan.like)
        folder = texts.build_vocabulary(
            settings, plan.trained_words, kind=kind, lowercase=_lowers_case(like), has_segments=plan.has_segments
        )
        return read_wordpieces(folder)

    def _text_of(self, plan: TokenizerPlan) -> texts.CorpusSettings | texts.LabelledSettings:
        """Return the text of the first stage whose student has a tokenizer."""
        for stage in self._plan.stages:
            if stage.tokenizer == plan:
                return stage.corpus
        raise RecipeError(
            "student.vocabulary is trained on the text of a stage, but no stage trains the student; add one, or leave "
            "vocabulary out."
        )


def _lowers_case(tokenizer: PreTrainedTokenizerBase | None) -> bool:
    """Whether a tokenizer reads capital letters as small ones, as that of a student like it does; None does."""
    if tokenizer is None:
        return True
    return bool(tokenizer("The")["input_ids"] == tokenizer("the")["input_ids"])


def load_tokenizers(plan: RunPlan) -> RunTokenizers:
    """Load the tokenizers of a plan, train those that are to be trained, and download the teacher's weights.

    This comes before the text is tokenised, which may take long: a tokenizer that does not fit its model, or a teacher
    that cannot be fetched, fails at once.
    """
    tokenizers = RunTokenizers(plan)
    if plan.teacher_info.tokenizer is not None:
        check_fits_model(tokenizers.teacher, plan.teacher.vocabulary)
    check_fits_model(tokenizers.student, plan.student.vocabulary)
    for stage in plan.stages:
        tokenizers.of_stage(stage)
    for teacher in plan.teacher_info.members:
        if teacher.has_weights:
            fetch_weights(teacher.spec.model, teacher.spec.revision)
    return tokenizers
