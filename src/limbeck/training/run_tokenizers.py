"""`RunTokenizers`: the tokenizers of a run's models, each loaded, trained or cut once."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from limbeck import corpus as texts
from limbeck.corpus.files.small_files import read_texts
from limbeck.corpus.settings import CorpusSpec
from limbeck.errors import RecipeError
from limbeck.kinds.kind import Kind
from limbeck.kinds.registry import KINDS
from limbeck.models.piece_choice import PieceAim
from limbeck.models.tokenizers import load_tokenizer
from limbeck.models.vocabularies import check_fits_model
from limbeck.models.vocabulary_cut import CutTokenizer, Pieces
from limbeck.models.weight_files import fetch_weights
from limbeck.models.wordpieces import read_wordpieces
from limbeck.recipe.plan import RunPlan
from limbeck.recipe.stage_plan import StagePlan
from limbeck.recipe.tokenizer_plans import TokenizerPlan, VocabularyCut


class RunTokenizers:
    """Loads, trains or cuts the tokenizers of a run's models, each when it is first asked for.

    Args:
        plan: The plan of the run.
    """

    def __init__(self, plan: RunPlan) -> None:
        self._plan = plan
        self._loaded: dict[TokenizerPlan, PreTrainedTokenizerBase] = {}
        self._cuts: dict[TokenizerPlan, CutTokenizer] = {}

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
        if stage.skips_other_texts:
            assert stage.whole_tokenizer is not None
            return texts.Tokenizers(student, whole=self.load(stage.whole_tokenizer))
        if stage.teacher_tokenizer is None:
            return texts.Tokenizers(student)
        return texts.Tokenizers(student, self.load(stage.teacher_tokenizer))

    def load(self, plan: TokenizerPlan) -> PreTrainedTokenizerBase:
        """Load a tokenizer, or make it of the text of the first stage whose student has it.

        Raises:
            LimbeckError: for a tokenizer that cannot be read, and a text that is too small for its vocabulary.
        """
        if plan not in self._loaded:
            if plan.trained_words:
                self._loaded[plan] = self._train(plan)
            elif plan.cut is not None:
                self._loaded[plan] = self._cut(plan).tokenizer
            else:
                self._loaded[plan] = load_tokenizer(plan.model, revision=plan.revision)
        return self._loaded[plan]

    def piece_ids(self, plan: TokenizerPlan) -> tuple[int, ...] | None:
        """The ids of the pieces of a cut tokenizer in the whole one, in the order of its own ids; None for no cut."""
        if plan.cut is None:
            return None
        return self._cut(plan).old_ids

    def _cut(self, plan: TokenizerPlan) -> CutTokenizer:
        """Cut a tokenizer to the pieces that the text uses most; the cache has those that were counted before."""
        if plan not in self._cuts:
            assert plan.cut is not None
            whole = self.load(replace(plan, cut=None))
            # The pieces are counted in texts that the recipe names for this, else in the text of the training.
            settings: texts.CorpusSettings | texts.LabelledSettings
            if plan.cut.counted:
                settings = texts.CorpusSettings.of(CorpusSpec(sources=list(plan.cut.counted), held_out=0))
            else:
                settings = self._text_of(plan)
            aim = PieceAim(pieces=plan.cut.pieces, coverage=plan.cut.coverage, words=self._words_to_keep(plan.cut))
            chosen = texts.choose_text_pieces(settings, whole, aim, kind=_kind_of(settings))
            self._cuts[plan] = Pieces(whole).cut(chosen)
        return self._cuts[plan]

    def _words_to_keep(self, cut: VocabularyCut) -> list[str]:
        """Return texts whose pieces a cut vocabulary keeps, however rare they are."""
        words: list[str] = []
        if cut.always:
            words = read_texts(Path(cut.always).expanduser())
        # Prompts stand before every text, but the text of a corpus is without them.
        sentence = self._plan.teacher_info.sentence
        if sentence is not None:
            words += [prompt for prompt in sentence.prompts.values() if prompt]
        return words

    def _train(self, plan: TokenizerPlan) -> PreTrainedTokenizerBase:
        """Train a tokenizer, or read it from limbeck's cache."""
        settings = self._text_of(plan)
        # Capital letters are read as another tokenizer of the plan reads them, and as small ones without such a one.
        lowercase = True
        if plan.like is not None:
            lowercase = _lowers_case(self.load(plan.like))
        folder = texts.build_vocabulary(
            settings,
            plan.trained_words,
            kind=_kind_of(settings),
            lowercase=lowercase,
            has_segments=plan.has_segments,
        )
        return read_wordpieces(folder)

    def _text_of(self, plan: TokenizerPlan) -> texts.CorpusSettings | texts.LabelledSettings:
        """Return the text of the first stage whose student has a tokenizer."""
        for stage in self._plan.stages:
            if stage.tokenizer == plan:
                return stage.corpus
        raise RecipeError(
            "student.vocabulary is made of the text of a stage, but no stage trains the student; add a stage, or "
            "leave student.vocabulary out."
        )


def load_tokenizers(plan: RunPlan) -> RunTokenizers:
    """Load the tokenizers of a plan, train those that are to be trained, and download the teacher's weights.

    This comes before the text is tokenised, which may take long: a tokenizer that does not fit its model, or a teacher
    that cannot be fetched, fails at once.
    """
    tokenizers = RunTokenizers(plan)
    if plan.teacher_info.tokenizer is not None:
        check_fits_model(tokenizers.teacher, plan.teacher.vocabulary)
    check_fits_model(tokenizers.student, plan.student.vocabulary)
    # `RunTokenizers` keeps what it has loaded, so this loads, trains or cuts the tokenizers of all stages now.
    for stage in plan.stages:
        tokenizers.of_stage(stage)
    for teacher in plan.teacher_info.members:
        if teacher.has_weights:
            fetch_weights(teacher.spec.model, teacher.spec.revision)
    return tokenizers


def _kind_of(settings: texts.CorpusSettings | texts.LabelledSettings) -> Kind | None:
    """The kind of the task of labelled rows; None for text."""
    if isinstance(settings, texts.LabelledSettings):
        return KINDS[settings.task]
    return None


def _lowers_case(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a tokenizer reads capital letters as small ones."""
    return bool(tokenizer("The")["input_ids"] == tokenizer("the")["input_ids"])
