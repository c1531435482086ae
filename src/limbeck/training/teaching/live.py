"""`LiveTeaching`: a frozen model that teaches, run on every batch up to the highest layer that a term reads."""

from collections.abc import Iterable

import torch
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from transformers import PreTrainedModel

from limbeck.core import ranks
from limbeck.corpus.batches.batch import Batch
from limbeck.methods.teaching import Teaching
from limbeck.methods.term import Term
from limbeck.models import packed_linear
from limbeck.models.families import blocks, shape_of
from limbeck.models.sentence_heads import SentenceHead
from limbeck.models.streams import Streams
from limbeck.models.taps import StreamTap
from limbeck.models.teaching_facts import TeachingFacts


class LiveTeaching(Teaching):
    """Reads a model's streams for one student, or for many at once.

    It is no `nn.Module`, so that a module that holds it does not have the teacher among its parameters and state.

    Args:
        teacher: The model that is read; frozen here.
        terms: The terms of all students that are served; a stream is computed once, however many terms read it.
        pooling: How the teacher's tokens become its `pooled` and `vector` streams.
        title: Its name in messages.
        sharded: Shard its layers over the processes, if there are several, when it is moved. Each process then holds a
            part of every block and gathers the rest as it runs.
        drop_above: Drop the blocks above the highest stream that is needed, to free their memory.

    Attributes:
        from_hidden: Whether all terms on logits can be computed from hidden vectors and the output layer, so that large
            logits need not be made.
    """

    def __init__(
        self,
        teacher: PreTrainedModel,
        terms: Iterable[Term],
        *,
        pooling: str | SentenceHead = "mean",
        title: str = "the teacher",
        sharded: bool = False,
        drop_above: bool = True,
    ) -> None:
        terms = list(terms)
        teacher.eval().requires_grad_(False)
        self.teacher = teacher
        self.facts = TeachingFacts(title, shape_of(teacher.config))
        # Where one term needs the logits themselves, the teacher makes them, and every term reads those.
        self.from_hidden = all(term.takes_from_hidden for term in terms if term.reads_logits)
        self._sharded = sharded and ranks.process_count() > 1
        keys = {key for term in terms for key in term.teacher}
        self._reads_logits = any(key.name == "logits" for key in keys)
        self.tap = StreamTap(teacher, keys, drop_above=drop_above, pooling=pooling, from_hidden=self.from_hidden)

    @torch.no_grad()
    def read(self, batch: Batch, scored: Tensor | None = None) -> Streams:
        """Run the teacher, in the number format of its weights; see `Teaching.read`."""
        # A method such as `mlm` learns from labels alone.
        if not self.tap.keys:
            return {}
        # `scored` marks tokens of the student. The teacher may read others, unless a term compares scores of tokens.
        if not self._reads_logits:
            scored = None
        # Training may run under autocast, which would change the teacher's format to the student's.
        device = batch.teacher["input_ids"].device
        with torch.autocast(device_type=device.type, enabled=False):
            return self.tap(**batch.teacher, scored=scored)

    def move(self, device: torch.device | str, *, pack: bool = True) -> None:
        """Place the teacher where it stays.

        Args:
            device: The device.
            pack: On a CPU, lay the weights out once in the order in which matrix products read them. `torch.compile`
                cannot trace such weights.
        """
        if self._sharded:
            _shard(self.teacher, torch.device(device))
            return
        # Weights that an earlier call laid out for a CPU have to be ordinary ones to be moved.
        packed_linear.unpack_linear_maps(blocks(self.teacher))
        self.teacher.to(device)
        if pack and torch.device(device).type == "cpu":
            packed_linear.pack_linear_maps(blocks(self.teacher))

    def close(self) -> None:
        """Take off the tap that reads the streams, and unpack the weights; blocks stay dropped."""
        packed_linear.unpack_linear_maps(blocks(self.teacher))
        self.tap.close()


def _shard(teacher: PreTrainedModel, device: torch.device) -> None:
    """Shard every block separately.

    The forward pass stops after the highest block that is read, so no wrapper around the whole model would see its end.
    """
    # An earlier call may have sharded the teacher already.
    if isinstance(blocks(teacher)[0], FSDPModule):
        return
    mesh = init_device_mesh(device.type, (ranks.process_count(),))
    for block in blocks(teacher):
        fully_shard(block, mesh=mesh, reshard_after_forward=True)  # By default a block would stay whole.
    teacher.to(device)
