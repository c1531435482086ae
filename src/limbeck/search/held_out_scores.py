"""The scores of candidates on held-out text, which needs no labels.

A *block* is a row of tokens of the held-out text. The blocks are read in *batches*.
"""

from collections.abc import Sequence

from torch import Tensor
from transformers import PreTrainedModel

from limbeck.comparison.held_out import held_out_batches
from limbeck.comparison.last_layers import LastLayers
from limbeck.comparison.pair_agreement import PairAgreement
from limbeck.core import devices
from limbeck.core.blocks import counted
from limbeck.errors import CorpusError
from limbeck.evaluation import SentencePair, build_pairs
from limbeck.models.students import build_student
from limbeck.recipe.plan import RunPlan
from limbeck.search.scores import Scores
from limbeck.training.learned_maps import Learned
from limbeck.training.proxy import Proxy
from limbeck.training.student_folder import finished_head

PAIRS = 1500
"""Sentence pairs of the agreement."""
BLOCKS = 128
"""Most held-out blocks of the relations."""
LOSS_BLOCKS = 96
"""Most held-out blocks of losses and of `explained`."""
_FEWEST_BATCHES = 3
"""Fewest batches for losses and `explained`: a map is fitted on two thirds of them, and measured on the rest."""

MAPPING_SCORES = ("agreement", "relations")
"""Scores of a search for a layer mapping."""
LAYER_SCORES = ("agreement", "explained")
"""Scores of a search for a teacher layer.

The score `relations` would favour the candidate that is trained on the relations of the teacher's last layer.
"""


class HeldOutScores:
    """Scores students on held-out text against the whole teacher, always at the last layers of both, in percent.

    - `agreement` is Spearman's correlation of the student's and the teacher's similarities of sentence pairs.
    - `relations` is the share of the teacher's token relations that the student has: 1 - d(student) / d(uniform), where
      d is the mean divergence KL(teacher ‖ ·) of query-query, key-key and value-value relations (MiniLMv2 section 3.1)
      and the uniform relation looks at all tokens alike.
    - `explained` is the share of the variance of the teacher's last hidden states that the best linear map of the
      student's explains.

    All are 100 for a student that equals its teacher, and 0 for one that knows nothing.

    The loss that a candidate was trained on is no score, not even on held-out text: a mapping that teaches fewer or
    easier layers, and a layer that is easier to learn, have a lower loss however good the student is. These scores
    measure the same for every candidate. They do prefer mappings that teach the student's last layer what the teacher's
    last layer does; for students that are to be fine-tuned, scores on tasks tell more.

    The teacher's similarities and relations are computed once, so that the teacher is not needed again. Only for
    `explained` it stays loaded, and is read again beside every student.

    Args:
        proxy: The proxy of the run that is searched for; some of its text is held out.
        names: The scores: `agreement`, and one of `relations` and `explained`.

    Raises:
        CorpusError: if too little text is held out.
    """

    def __init__(self, proxy: Proxy, names: Sequence[str] = MAPPING_SCORES) -> None:
        self.names = tuple(names)
        self._device = devices.choose_device("auto")
        teacher = proxy.load_teacher().to(self._device).eval()
        corpus = proxy.corpora[0]
        plan = proxy.plan
        self._agreement = PairAgreement(teacher, proxy.tokenizer, corpus, held_out_pairs(proxy), plan.vectors())
        # The second score is `explained` (of hidden states) or `relations` (of attention). `LastLayers` measures both.
        if "explained" in names:
            # `explained` compares hidden states, for which the teacher is read again beside every student.
            self._last_layers = LastLayers(teacher, loss_batches(proxy), [plan.student], keep_streams=False)
        else:
            # For `relations` the teacher is read once, and its vectors are kept. Nothing is fitted, so that a single
            # batch is enough.
            batches = held_out_batches(corpus, proxy.tokenizer, BLOCKS, fewest_batches=1)
            self._last_layers = LastLayers(teacher, batches, [plan.student], keep_streams=True)

    def measure(self, student: PreTrainedModel, plan: RunPlan, name: str, learned: Learned | None = None) -> Scores:
        """Score a student.

        Args:
            student: Trained, without taps.
            plan: The plan of the student's run.
            name: Name of the candidate, which scores on held-out text do not need.
            learned: Learned maps of the stage that taught its sentence vectors, see `Trained`.
        """
        student = student.to(self._device)
        # Similarities are of the vectors that the finished student makes. Without a head they are of vectors made in
        # the teacher's way, as where the recipe names a pooling for both.
        head = None
        sentence = plan.student_sentence
        if sentence is not None and plan.recipe.evaluation.pooling == "auto":
            head = finished_head(sentence, learned)
        shares = {"agreement": self._agreement.of_student(student, head)}
        figures = self._last_layers.compare(student)
        # `__init__` has prepared one of the two scores; `explained` is measured only where it is that one.
        if figures.explained is None:
            # 1 for the teacher's relations, and 0 for uniform ones, in which all tokens are equally similar.
            shares["relations"] = 1 - figures.divergence / self._last_layers.uniform
        else:
            shares["explained"] = figures.explained
        student.cpu()
        return {score: 100 * shares[score] for score in self.names}


def held_out_pairs(proxy: Proxy) -> list[SentencePair]:
    """Choose the pairs of held-out sentences whose similarity student and teacher should agree on.

    Raises:
        CorpusError: if too little text is held out.
    """
    corpus = proxy.corpora[0]
    documents = [document.text for document in corpus.held_out_documents()]
    if not documents or len(corpus.held_out) == 0:
        raise CorpusError(
            "No text is held out, but without proxy tasks candidates are scored on held-out text; set "
            "corpus.held_out to a share above 0, or give --tasks."
        )
    try:
        return build_pairs(documents, PAIRS)
    except CorpusError as error:
        raise CorpusError(f"{error} In place of held-out text, candidates can be scored on tasks (--tasks).") from None


def loss_batches(proxy: Proxy) -> list[dict[str, Tensor]]:
    """Return the held-out blocks of tokens on which students are compared with the teacher, in at least three batches.

    Raises:
        CorpusError: if too little text is held out.
    """
    batches = held_out_batches(proxy.corpora[0], proxy.tokenizer, LOSS_BLOCKS, fewest_batches=_FEWEST_BATCHES)
    if len(batches) < _FEWEST_BATCHES:
        # With so few blocks every batch has a single one, so this counts the blocks.
        raise CorpusError(
            f"{counted(len(batches), 'block')} held out, but comparing students needs at least {_FEWEST_BATCHES}; "
            "raise corpus.held_out."
        )
    return batches


def plain_copy(student: PreTrainedModel, plan: RunPlan) -> PreTrainedModel:
    """Return a student's weights in a model without taps, in evaluation mode on the same device.

    The student in training has a *tap*, which reads its streams and stops its forward at the deepest one that the
    method needs. A second tap for the scores would take that one off.

    Args:
        student: A student in training, which is left as it is.
        plan: The plan of the student's run.
    """
    # The seed does not matter, since all weights are replaced.
    copy = build_student(plan.student_config, seed=0, head=plan.head)
    copy.load_state_dict(student.state_dict())
    return copy.to(student.device).eval()
