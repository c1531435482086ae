"""Taps: read streams out of a running model, and run no more of it than they need.

A *stream* is a tensor of a model at a layer, such as `hidden` or `query`; see `streams.py`. A batch may run *packed*,
as one row of its real tokens `[1, T]`, so that no layer computes padding; see `packing.py`. A task head may need the
padded batch, one row for each text; then only attention runs packed.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from limbeck.errors import ModelError, shorten_error, suggestion
from limbeck.kernels.packed_attention import HALVES
from limbeck.kernels.soft_label_chunks import logits_at_once
from limbeck.models import tap_points
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.families import base_model, blocks, depth, family_of
from limbeck.models.family_table import Family, families
from limbeck.models.packed_rows import Packing, RowStreams
from limbeck.models.packing import padded_batch_positions, plan_packing
from limbeck.models.quiet import quiet
from limbeck.models.sentence_heads import SentenceHead, pool
from limbeck.models.stop_forward import StopForward
from limbeck.models.streams import OF_ATTENTION, OF_OUTPUT, OF_SENTENCES, STREAM_NAMES, StreamKey, Streams
from limbeck.models.tap_points import Recorder
from limbeck.models.tap_verification import WholeRun, run_whole, verify_streams


class StreamTap(AbstractContextManager["StreamTap"]):
    """Runs a model and returns the streams that were asked for.

    The forward stops at the deepest stream: blocks above it are skipped (or dropped for good), and of the deepest
    block only the part that is needed runs. Streams equal those of a full forward. The model's own parameters and
    their names stay untouched, so it can be saved at any time.

    Args:
        model: An encoder, with or without a head on top.
        keys: The streams to read; layers as in `hidden_states`.
        drop_above: Whether to remove the parts that never run (blocks, and linear maps of the last block) to free their
            memory. For teachers.
        pooling: How `pooled` and `vector` are made of the last hidden state: a pooling, or the head of a model with
            modules behind it, which `vector` goes through.
        from_hidden: Whether to leave logits over the vocabulary unmade where they are many (`logits_at_once`), and
            return the tensors that make them instead; see `streams.py`.

    Raises:
        ModelError: for a stream or layer the model does not have, a family whose attention cannot be tapped, or one
            outside of the table whose streams are not what a full forward and the block's own maps give.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        keys: Iterable[StreamKey],
        *,
        drop_above: bool = False,
        pooling: str | SentenceHead = "mean",
        from_hidden: bool = False,
    ) -> None:
        # The model and the streams.
        self.model = model
        self.base = base_model(model)
        self.depth = depth(model.config)
        self.keys = frozenset(keys)
        self.sentence_head = SentenceHead(pooling) if isinstance(pooling, str) else pooling
        for key in self.keys:
            _check_key(key, self.depth)
        names = {key.name for key in self.keys}
        reads_attention = not names.isdisjoint(OF_ATTENTION)
        self.recorder = Recorder.plan((_source_of(key) for key in self.keys), self.depth)
        self._last_hidden = StreamKey("hidden", self.depth)
        self._reads_last_hidden = any(_reads_last_hidden(key, self.depth) for key in self.keys)

        # The head, which runs for its logits alone.
        self._runs_head = "logits" in names
        self._from_hidden = from_hidden
        # The map onto the vocabulary; None for the heads of tasks, which have no such map.
        self._decoder: Any = None
        if self._runs_head:
            self._decoder = model.get_output_embeddings()

        # Packing needs the tap's own attention, which keeps samples apart. It replaces SDPA, transformers' default, but
        # not another attention that the user chose.
        family = family_of(model.config)
        self._shares_blocks = family.shared_blocks
        self._previous_attention: str | None = model.config._attn_implementation
        may_replace_attention = reads_attention or self._previous_attention == "sdpa"
        self._packs = family.packs and may_replace_attention
        self._taps_attention = reads_attention or self._packs

        # The state of the running forward: the tokens to score, which the hook before the decoder reads, and the parts
        # of logits, which it writes when it leaves these unmade.
        self._scored: Tensor | None = None
        self._logit_parts: dict[StreamKey, Tensor] = {}

        # A family outside of the table is run without a tap, while the model is still whole. The tap's streams are
        # verified by that run.
        run_without_tap = None
        if model.config.model_type not in families:
            run_without_tap = run_whole(self.base)
        if drop_above and not self._shares_blocks:
            self._drop_above(family)
        # Each block once, also if it serves several layers; dropped blocks are not among them.
        self._blocks = list(dict.fromkeys(blocks(model)))
        self._handles: list[torch.utils.hooks.RemovableHandle] = []
        tap_points.attach_dropout(model)
        self._install(family)
        if run_without_tap is not None:
            self._verify_or_close(run_without_tap)

    def _verify_or_close(self, run_without_tap: WholeRun) -> None:
        """Refuse a model whose streams are wrong, and take the tap off it again.

        Args:
            run_without_tap: A run of the model from before it had the tap.

        Raises:
            ModelError: if one of the streams is not found in that run.
        """
        try:
            self._verify(run_without_tap)
        except ModelError:
            self.close()
            raise

    def _drop_above(self, family: Family) -> None:
        """Remove the parts of the model that never run: blocks above the last stream, and the end of its block."""
        # One block stays even for the embedding alone: its input is that stream.
        count = max(1, self.recorder.last_layer)
        del self.base.get_submodule(family.blocks)[count:]
        # Llama-like families slice their list by the config; the others only iterate over it.
        setattr(self.base.config, family.fields.layers, count)
        # Where the last stream is one of attention, such as keys, the maps behind attention never run in its block. The
        # block's code still refers to them, so modules without weights take their places.
        if family.roles is not None and self.recorder.stop_after != "block":
            last_block = blocks(self.model)[-1]
            for path in (family.roles.attention_output, family.roles.ffn_in, family.roles.ffn_out):
                last_block.set_submodule(path, nn.Identity().train(last_block.training))

    def _install(self, family: Family) -> None:
        """Put hooks on the model, and let the last needed block, and those above it, run only as far as is needed."""
        recorder = self.recorder
        if self._taps_attention:
            self._tap_attention(family)
        if self._decoder is not None:
            self._handles.append(self._decoder.register_forward_pre_hook(self._select_scored_tokens))
        if self._runs_head and self._packs:
            self._handles.append(self.base.register_forward_pre_hook(self._remove_mask_below_head, with_kwargs=True))
        for number, block in enumerate(self._blocks, start=1):
            # A shared block runs for several layers, any of which may be the last needed one.
            layer = None if self._shares_blocks else number
            may_stop = self._shares_blocks or number >= recorder.last_layer
            enter = partial(_enter_block, recorder, layer)
            self._handles.append(block.register_forward_pre_hook(enter, with_kwargs=True))
            self._handles.append(block.register_forward_hook(partial(_leave_block, recorder)))
            if may_stop:
                block.forward = partial(_run_needed_part, block, recorder, family.returned)

    def _tap_attention(self, family: Family) -> None:
        """Record streams of attention through the AttentionInterface, or by hooks for families that do not use it."""
        if family.projections is not None:
            for block in self._blocks:
                self._handles.extend(tap_points.attach_projections(block, self.recorder, family.projections))
            return
        # A model that does not use the interface raises a ValueError, or keeps its own attention without a word.
        with quiet(), suppress(ValueError):
            self.model.set_attn_implementation(tap_points.TAPPED_ATTENTION)
        if self.model.config._attn_implementation != tap_points.TAPPED_ATTENTION:
            raise self._no_interface_error()
        for block in self._blocks:
            tap_points.attach_attention(block, self.recorder)

    def _no_interface_error(self) -> ModelError:
        """The error for a model whose attention cannot be tapped."""
        return ModelError(
            f"'{self.model.config.model_type}' does not compute attention through transformers' AttentionInterface, so "
            "query, key, value and context cannot be tapped; use a method on hidden states or vectors, such as "
            "hidden_states, sentence_embedding or aligned_embedding."
        )

    @torch.no_grad()
    def _verify(self, run_without_tap: WholeRun) -> None:
        """Refuse a model if one of the tap's streams is not found in a run without a tap."""
        with evaluation_mode(self.model):
            # The rows have no padding.
            attention_mask = torch.ones_like(run_without_tap.input_ids)
            try:
                streams = self(run_without_tap.input_ids, attention_mask)
            except KeyError as error:
                # A stream that was asked for was never recorded.
                raise self._no_interface_error() from error
            except (RuntimeError, TypeError, ValueError) as error:
                names = ", ".join(sorted({key.name for key in self.keys}))
                raise ModelError(
                    f"'{self.model.config.model_type}' does not run with a tap on {names} "
                    f"({shorten_error(error)}); use a method on hidden states or sentence vectors."
                ) from error
        verify_streams(self.base, streams, run_without_tap)

    def __call__(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        *,
        scored: Tensor | None = None,
        skipped: Tensor | None = None,
        **inputs: Tensor,
    ) -> Streams:
        """Run the model on a batch.

        Args:
            input_ids: `[B, L]`.
            attention_mask: `[B, L]`, nonzero where a token is real; any shape of mask.
            scored: Bool `[B, L]`: score only these tokens over the vocabulary, or over classes of tokens. `logits` is
                then `[tokens, V]`, in the order of the batch; without it it is as `streams.py` says. Not for heads
                that score a sample as a whole.
            skipped: Tokens of a prompt at the beginning of each row, `[B]`; read where the pooling leaves them out.
            **inputs: Further inputs of the model, for example `token_type_ids`.

        Returns:
            One tensor for every key. Logits that were left unmade are replaced by the tensors that make them.
        """
        # A head that scores whole samples needs the padded batch, so that attention alone may run packed. Otherwise the
        # whole model may run packed.
        needs_padded_batch = self._runs_head and scored is None
        attention_packing = self._plan_attention(attention_mask, needs_padded_batch=needs_padded_batch)
        row_packing = None if needs_padded_batch else attention_packing
        if scored is not None and row_packing is not None:
            scored = row_packing.pack(scored)

        model_inputs = {"input_ids": input_ids, "attention_mask": attention_mask, **inputs}
        run = self._run(model_inputs, row_packing, attention_packing, scored)
        recorded = run.recorded
        if self._reads_last_hidden:
            # It takes the place of the last block's output: some families apply a final norm behind that block.
            output = run.output
            recorded[self._last_hidden] = output.hidden_states[-1] if self._runs_head else output.last_hidden_state

        # Streams that are made of others are computed from unpacked ones, `[B, L, ...]`.
        sources: Streams = recorded
        if row_packing is not None:
            sources = RowStreams(row_packing, recorded, {})
        derived = self._derive(run, sources, attention_mask.bool(), scored=scored, skipped=skipped)
        derived.update(run.logit_parts)

        recorded_streams = {}
        for key in self.keys:
            is_unmade = key.name == "logits" and bool(run.logit_parts)
            if key not in derived and not is_unmade:
                recorded_streams[key] = recorded[key]
        if row_packing is None:
            return recorded_streams | derived
        return RowStreams(row_packing, recorded_streams, derived)

    def _plan_attention(self, attention_mask: Tensor, *, needs_padded_batch: bool) -> Packing | None:
        """Return the packing that attention runs in; None where it runs on the padded batch.

        Args:
            attention_mask: `[B, L]`.
            needs_padded_batch: Whether all else runs on the padded batch.
        """
        if not self._packs:
            return None
        # With gradient checkpointing a block runs again in the backward pass, when the recorder has no packing.
        if any(module.__dict__.get("gradient_checkpointing") for module in self.model.modules()):
            return None
        dtype = _dtype_of_maps(self.model)
        if needs_padded_batch and attention_mask.device.type == "cpu":
            # On a CPU packing for attention alone costs more than it saves. The exception is training in half
            # precision, where the backward pass of PyTorch's own attention is slow.
            has_slow_backward = torch.is_grad_enabled() and dtype in HALVES
            if not has_slow_backward:
                return None
        return plan_packing(attention_mask, dtype)

    def _run(
        self,
        inputs: dict[str, Tensor],
        row_packing: Packing | None,
        attention_packing: Packing | None,
        scored: Tensor | None,
    ) -> "_Run":
        """Run the model while the recorder is active.

        Args:
            inputs: The model's inputs, `[B, L]` each.
            row_packing: The packing that the whole model runs in, if it does.
            attention_packing: The packing that attention runs in, if it does.
            scored: Tokens to score, as the model sees them: `[B, L]`, or packed.
        """
        packed_inputs: dict[str, Tensor | None] = dict(inputs)
        if row_packing is not None:
            packed_inputs = self._pack_inputs(inputs, row_packing)
        runner = self.model if self._runs_head else self.base
        options = {}
        if self._runs_head and self._reads_last_hidden:
            # A model with a head returns its last hidden state only among those of all layers.
            options["output_hidden_states"] = True
        # The hook before the decoder reads these tokens. It sets `_logit_parts` if it leaves the logits unmade.
        self._scored = scored
        self.recorder.start(attention_packing)
        try:
            output = runner(**packed_inputs, **options)
        finally:
            # Also after an error nothing of this batch may stay.
            recorded = self.recorder.finish()
            logit_parts = self._logit_parts
            self._scored = None
            self._logit_parts = {}
        return _Run(output, recorded, logit_parts)

    def _derive(
        self, run: "_Run", sources: Streams, valid: Tensor, *, scored: Tensor | None, skipped: Tensor | None
    ) -> dict[StreamKey, Tensor]:
        """Make the streams that no hook records: those of the model's output, and those made of recorded streams.

        Args:
            run: The run.
            sources: Recorded streams, `[B, L, ...]`.
            valid: Bool `[B, L]`, the real tokens.
            scored: Tokens to score, as the model saw them: `[B, L]`, or packed.
            skipped: Tokens of a prompt at the beginning of each row, `[B]`.
        """
        if self.sentence_head.sentence.include_prompt:
            # The tokens of prompts are pooled like all others.
            skipped = None
        derived = {}
        for key in self.keys:
            if key.name == "logits" and not run.logit_parts:
                derived[key] = self._scores(run.output, valid, scored)
            elif key.name == "vector":
                derived[key] = self._vectors(sources[self._last_hidden], valid, skipped)
            elif key.name == "cls":
                derived[key] = pool(sources[_source_of(key)], valid, "cls")
            elif key.name == "pooled":
                pooling = self.sentence_head.sentence.pooling
                derived[key] = pool(sources[self._last_hidden], valid, pooling, skipped)
        return derived

    def _scores(self, output: Any, valid: Tensor, scored: Tensor | None) -> Tensor:
        """Return the head's scores: of all tokens, of the scored ones alone, or of each sample.

        A head for question answering scores each token as the start of the answer and as its end, `[B, 2, L]`. Padding
        gets minus infinity there, so that it is never an answer.
        """
        if "start_logits" in output:
            start_and_end = torch.stack([output.start_logits, output.end_logits], dim=1)
            return start_and_end.masked_fill(~valid.unsqueeze(1), float("-inf"))
        logits: Tensor = output.logits
        if scored is not None and self._decoder is None:
            # A decoder was given the scored tokens alone. Any other head has scored all tokens.
            logits = logits[scored]
        return logits

    def _vectors(self, hidden: Tensor, valid: Tensor, skipped: Tensor | None) -> Tensor:
        """Return finished sentence vectors, in float32: the head has neither the model's weights nor its precision."""
        with torch.autocast(device_type=hidden.device.type, enabled=False):
            vectors: Tensor = self.sentence_head.to(hidden.device)(hidden, valid, skipped)
        return vectors

    def _pack_inputs(self, inputs: dict[str, Tensor], packing: Packing) -> dict[str, Tensor | None]:
        """Return the inputs as one row of real tokens.

        Nothing in them says where a sample ends. The tapped attention, which keeps samples apart, reads that from the
        recorder's packing.
        """
        packed: dict[str, Tensor | None] = {}
        for name, values in inputs.items():
            is_by_token = values.shape[:2] == packing.shape
            packed[name] = packing.pack(values) if is_by_token else values
        # A token keeps the position that it has in its text.
        if "position_ids" not in inputs:
            padding_id = None
            if family_of(self.model.config).padded_positions:
                padding_id = self.base.config.pad_token_id
            positions = padded_batch_positions(inputs["input_ids"], padding_id)
            packed["position_ids"] = packing.pack(positions)
        # There is no padding to mask.
        packed["attention_mask"] = None
        return packed

    def _remove_mask_below_head(
        self, base: nn.Module, args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any]] | None:
        """Remove the mask of a model below a head on a GPU, where packed attention reads the packing's offsets instead.

        With a mask the model would wait for the GPU, to see whether the mask has any padding.
        """
        packing = self.recorder.packing
        if packing is None or packing.offsets is None:
            return None
        return args, {**kwargs, "attention_mask": None}

    def _select_scored_tokens(self, decoder: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Give the decoder, a linear map onto the vocabulary, only the tokens that are to be scored.

        The logits of many tokens over a large vocabulary may not fit into memory. The decoder then gets no token at
        all. Its input and its weights are kept as streams instead, of which the loss makes the logits chunk by chunk.
        """
        hidden, *further_args = args
        if self._scored is not None:
            hidden = hidden[self._scored]
        tokens = hidden.shape[:-1].numel()
        if self.leaves_unmade(tokens):
            assert isinstance(decoder, nn.Linear)
            dtype = _dtype_of_maps(hidden)
            self._logit_parts = {
                StreamKey("pre_logits", self.depth): hidden.to(dtype),
                StreamKey("output_weight", self.depth): decoder.weight.to(dtype),
            }
            if decoder.bias is not None:
                self._logit_parts[StreamKey("output_bias", self.depth)] = decoder.bias.to(dtype)
            hidden = hidden[..., :0, :]
        return (hidden, *further_args)

    def leaves_unmade(self, tokens: int) -> bool:
        """Return whether the logits of this number of tokens are too many to be made at once."""
        if not self._from_hidden or self._decoder is None:
            return False
        weight: Tensor = self._decoder.weight
        vocabulary = len(weight)
        return tokens * vocabulary > logits_at_once(weight.device)

    def close(self) -> None:
        """Take the tap off again; blocks that were dropped stay dropped."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        tap_points.detach(self.model)
        for block in self._blocks:
            # Without the replacement that stands on the block itself, its class's `forward` is called again.
            block.__dict__.pop("forward", None)
        if self.model.config._attn_implementation == tap_points.TAPPED_ATTENTION:
            self.model.set_attn_implementation(self._previous_attention or "sdpa")

    def __exit__(self, *error: object) -> None:
        self.close()


class _Run(NamedTuple):
    """A run of the model.

    Attributes:
        output: The model's output.
        recorded: Streams that hooks recorded, packed where the model ran packed.
        logit_parts: What makes the logits, where they were left unmade.
    """

    output: Any
    recorded: dict[StreamKey, Tensor]
    logit_parts: dict[StreamKey, Tensor]


def _dtype_of_maps(model_or_tensor: PreTrainedModel | Tensor) -> torch.dtype:
    """Return the dtype in which linear maps of a model are computed, given the model or a tensor of its dtype."""
    device_type = model_or_tensor.device.type
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return model_or_tensor.dtype


def _source_of(key: StreamKey) -> StreamKey:
    """Return the stream that is recorded for a key: for a CLS vector the output of its layer, else the key itself."""
    if key.name != "cls":
        return key
    if key.layer == 0:
        return StreamKey("embedding", 0)
    return StreamKey("hidden", key.layer)


def _reads_last_hidden(key: StreamKey, layers: int) -> bool:
    """Whether a stream is the last hidden state of a model of so many layers, or is made of it."""
    if key.name in OF_SENTENCES:
        return True
    return key.name in ("hidden", "cls") and key.layer == layers


def _check_key(key: StreamKey, layers: int) -> None:
    """Refuse a stream that a model of this depth does not have; see the table of layers in `streams.py`."""
    if key.name not in STREAM_NAMES:
        raise ModelError(f"Unknown stream '{key.name}'.{suggestion(key.name, STREAM_NAMES)}")
    if key.name == "embedding":
        layers_with_stream = [0]
    elif key.name == "cls":
        layers_with_stream = [*range(layers + 1)]
    elif key.name in OF_OUTPUT:
        layers_with_stream = [layers]
    else:
        layers_with_stream = [*range(1, layers + 1)]
    if key.layer not in layers_with_stream:
        lowest = layers_with_stream[0]
        highest = layers_with_stream[-1]
        allowed = f"layer {lowest}" if lowest == highest else f"layers {lowest} to {highest}"
        raise ModelError(f"Layer {key.layer} has no stream '{key.name}': in this model it exists only in {allowed}.")


def _enter_block(recorder: Recorder, layer: int | None, module: nn.Module, args: Any, kwargs: Any) -> None:
    """Note which layer runs now, and keep the first block's input as the embedding output.

    Args:
        recorder: Keeps both.
        layer: The block's layer; None for a block that several layers share.
        module: The block.
        args: Positional arguments of the block.
        kwargs: Keyword arguments of the block.
    """
    if layer is None:
        # Every call of a shared block is one layer more.
        recorder.layer += 1
    else:
        recorder.layer = layer
    if recorder.layer == 1:
        hidden_states = args[0] if args else kwargs["hidden_states"]
        recorder.record("embedding", 0, hidden_states)


def _leave_block(recorder: Recorder, module: nn.Module, args: Any, output: Any) -> None:
    """Keep a block's output."""
    hidden_states = output[0] if isinstance(output, tuple) else output
    recorder.record("hidden", recorder.layer, hidden_states)


def _run_needed_part(block: nn.Module, recorder: Recorder, tuple_length: int, *args: Any, **kwargs: Any) -> Any:
    """Run a block only as far as a stream needs it; a block above the last needed layer is skipped.

    A block that is skipped or stopped returns its input in the place of its output, which nothing reads. The early exit
    is caught here, inside of the block, so that DDP, FSDP and compilers see a forward that returns.

    Args:
        block: The block, whose `forward` this function replaces.
        recorder: Knows the running layer, and raises `StopForward` where the block may stop.
        tuple_length: The length of the tuple that the family's blocks return; 0 for hidden states alone.
        *args: Positional arguments of the block.
        **kwargs: Keyword arguments of the block.
    """
    hidden_states = args[0] if args else kwargs["hidden_states"]
    unread_output = hidden_states
    if tuple_length:
        # The model unpacks a tuple of this length.
        unread_output = (hidden_states, *[None] * (tuple_length - 1))
    if recorder.layer > recorder.last_layer:
        return unread_output
    try:
        return type(block).forward(block, *args, **kwargs)
    except StopForward:
        return unread_output
