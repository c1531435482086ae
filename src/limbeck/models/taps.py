"""Taps: read streams out of a running model, and run no more of it than they need."""

import copy
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel

from limbeck.errors import ModelError, shorten_error, suggestion
from limbeck.kernels.packed_attention import HALVES
from limbeck.kernels.soft_label_chunks import logits_at_once
from limbeck.models import tap_points
from limbeck.models.families import base_model, blocks, depth, family_of, shape_of
from limbeck.models.family_table import Family, families
from limbeck.models.packed_rows import Packing, RowStreams
from limbeck.models.packing import padded_batch_positions, plan_packing
from limbeck.models.quiet import quiet
from limbeck.models.sentence_heads import SentenceHead, pool
from limbeck.models.streams import ATTENTION_KINDS, OF_OUTPUT, SENTENCE_KINDS, STREAM_KINDS, StreamKey, Streams
from limbeck.models.tap_points import Recorder, StopForward

_SHORT = 8  # Tokens of a row on which streams are verified.


class StreamTap(AbstractContextManager["StreamTap"]):
    """Runs a model and returns the streams that were asked for.

    The forward stops at the deepest stream: blocks above it are skipped (or dropped for good), and of the deepest
    block only the part that is needed runs. Streams equal those of a full forward. The model's own parameters and
    their names stay untouched, so it can be saved at any time.

    Args:
        model: An encoder, with or without a head on top.
        keys: The streams to read; layers as in `hidden_states`.
        drop_above: Remove the parts that never run, blocks and the linear maps of the last one, to free their
            memory. For teachers.
        pooling: How `pooled` and `vector` are made of the last hidden state: a pooling, or the head of a model with
            modules behind it, which `vector` goes through.
        from_hidden: Return, for a batch with more logits over the vocabulary than losses in chunks hold at once
            (`logits_at_once`), what makes them instead; see `streams.py`.

    Raises:
        ModelError: for a kind or layer the model does not have, a family whose attention cannot be tapped, or one
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
        self.model = model
        self.base = base_model(model)
        self.depth = depth(model.config)
        self.keys = frozenset(keys)
        self.sentence_head = SentenceHead(pooling) if isinstance(pooling, str) else pooling
        for key in self.keys:
            _check_key(key, self.depth)
        self.recorder = Recorder.plan((_recorded(key) for key in self.keys), self.depth)
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

        # The head, and the logits that it makes or leaves unmade.
        self._runs_head = any(key.kind == "logits" for key in self.keys)
        needs_hidden = any(_reads_last_hidden(key, self.depth) for key in self.keys)
        self._options = {"output_hidden_states": True} if self._runs_head and needs_hidden else {}
        self._from_hidden = from_hidden
        # The map onto the vocabulary; heads of tasks have none.
        self._decoder: Any = model.get_output_embeddings() if self._runs_head else None
        self._scored: Tensor | None = None
        self._unmade: dict[StreamKey, Tensor] = {}

        # Packing needs attention that keeps samples apart, which the tap is; whoever chose another one keeps it.
        family = family_of(model.config)
        self._shared = family.shared_blocks
        self._previous_attention: str | None = model.config._attn_implementation
        reads_attention = any(key.kind in ATTENTION_KINDS for key in self.keys)
        self._packs = family.packs and (reads_attention or self._previous_attention == "sdpa")
        self._taps_attention = reads_attention or self._packs

        # A family outside of the table is run whole before anything is dropped, to verify the tap's streams by.
        whole = None if model.config.model_type in families else _run_whole(self.base)
        if drop_above and not self._shared:
            self._drop_above(family)
        self._blocks = list(dict.fromkeys(blocks(model)))
        tap_points.attach_dropout(model)
        self._install()
        if whole is not None:
            try:
                self._verify(whole)
            except ModelError:
                self.close()
                raise

    def _drop_above(self, family: Family) -> None:
        """Remove the parts that never run."""
        # One block stays even for the embedding alone: its input is that stream.
        count = max(1, self.recorder.last_layer)
        del self.base.get_submodule(family.blocks)[count:]
        # Llama-like families slice their list by the config; the others only iterate over it.
        setattr(self.base.config, family.fields.layers, count)
        if family.roles is not None and self.recorder.stop_after != "block":
            last = blocks(self.model)[-1]
            for path in (family.roles.attention_output, family.roles.ffn_in, family.roles.ffn_out):
                last.set_submodule(path, nn.Identity().train(last.training))

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
            One tensor for every key, but for logits that were left unmade.
        """
        dtype = _dtype_of_maps(self.model)
        # A head that takes the first token of a row, or scores all tokens, needs rows. Attention below it does not, and
        # in bfloat16 PyTorch's is slow backward on a CPU.
        needs_rows = self._runs_head and scored is None
        on_cpu = attention_mask.device.type == "cpu"
        pays = not needs_rows or not on_cpu or (torch.is_grad_enabled() and dtype in HALVES)
        # A checkpointed block runs again when nobody can tell it where samples end.
        checkpointed = any(module.__dict__.get("gradient_checkpointing") for module in self.model.modules())
        may_pack = pays and self._packs and not checkpointed
        attended = plan_packing(attention_mask, dtype) if may_pack else None
        packing = None if needs_rows else attended
        self._scored = scored if scored is None or packing is None else packing.pack(scored)
        self.recorder.start(attended)
        runner = self.model if self._runs_head else self.base
        given = {"input_ids": input_ids, "attention_mask": attention_mask, **inputs}
        try:
            output = runner(**(given if packing is None else self._packed(given, packing)), **self._options)
        finally:
            found = self.recorder.finish()
            picked = None if self._decoder is not None else self._scored
            unmade, self._scored, self._unmade = self._unmade, None, {}
        last = StreamKey("hidden", self.depth)
        if any(_reads_last_hidden(key, self.depth) for key in self.keys):
            # Families with a final norm apply it here.
            found[last] = output.hidden_states[-1] if self._runs_head else output.last_hidden_state
        streams = found if packing is None else RowStreams(packing, found, {})
        keys = {key for key in self.keys if key.kind != "logits" or not unmade}
        skipped = None if self.sentence_head.sentence.include_prompt else skipped
        made = self._made(keys, streams, output, attention_mask.bool(), picked, skipped) | unmade
        recorded = {key: found[key] for key in keys - made.keys()}
        return recorded | made if packing is None else RowStreams(packing, recorded, made)

    def _made(
        self,
        keys: Iterable[StreamKey],
        found: Streams,
        output: Any,
        valid: Tensor,
        picked: Tensor | None,
        skipped: Tensor | None,
    ) -> dict[StreamKey, Tensor]:
        """Make those of `keys` that are made of the model's output or of recorded streams.

        A head without a decoder has scored all tokens: `picked` are those that are wanted.
        """
        made = {}
        last = StreamKey("hidden", self.depth)
        for key in keys:
            if key.kind == "logits":
                made[key] = _logits(output, valid) if picked is None else output.logits[picked]
            elif key.kind == "vector":
                made[key] = self._vectors(found[last], valid, skipped)
            elif key.kind == "cls":
                source = last if key.layer == self.depth else _recorded(key)
                made[key] = pool(found[source], valid, "cls")
            elif key.kind == "pooled":
                made[key] = pool(found[last], valid, self.sentence_head.sentence.pooling, skipped)
        return made

    def _vectors(self, hidden: Tensor, valid: Tensor, skipped: Tensor | None) -> Tensor:
        """Return finished sentence vectors, in float32: the head has neither the model's weights nor its precision."""
        with torch.autocast(device_type=hidden.device.type, enabled=False):
            vectors: Tensor = self.sentence_head.to(hidden.device)(hidden, valid, skipped)
        return vectors

    def _packed(self, inputs: dict[str, Tensor], packing: Packing) -> dict[str, Tensor | None]:
        """Return the inputs as one row of real tokens; the recorder knows the lengths of its samples."""
        packed: dict[str, Tensor | None] = {}
        for name, values in inputs.items():
            is_by_token = values.shape[:2] == packing.shape
            packed[name] = packing.pack(values) if is_by_token else values
        if "position_ids" not in inputs:
            padding = None
            if family_of(self.model.config).padded_positions:
                padding = self.base.config.pad_token_id
            positions = padded_batch_positions(inputs["input_ids"], padding)
            packed["position_ids"] = packing.pack(positions)
        packed["attention_mask"] = None
        return packed

    def close(self) -> None:
        """Take the tap off again; blocks that were dropped stay dropped."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        tap_points.detach(self.model)
        for block in self._blocks:
            block.__dict__.pop("forward", None)
        if self.model.config._attn_implementation == tap_points.TAPPED_ATTENTION:
            self.model.set_attn_implementation(self._previous_attention or "sdpa")

    def __exit__(self, *error: object) -> None:
        self.close()

    def _install(self) -> None:
        recorder = self.recorder
        if self._taps_attention:
            self._tap_attention()
        if self._decoder is not None:
            self._handles.append(self._decoder.register_forward_pre_hook(self._before_decoder))
        if self._runs_head and self._packs:
            self._handles.append(self.base.register_forward_pre_hook(self._before_base, with_kwargs=True))
        # Shared blocks run once per layer, so only a count of their calls tells the layer.
        for index, block in enumerate(self._blocks):
            layer = None if self._shared else index + 1
            enter = partial(_enter_block, recorder, layer)
            self._handles.append(block.register_forward_pre_hook(enter, with_kwargs=True))
            self._handles.append(block.register_forward_hook(partial(_leave_block, recorder)))
            above = layer is not None and layer > recorder.last_layer
            if self._shared or above or layer == recorder.last_layer:
                block.forward = partial(_run_needed_part, block, recorder, family_of(self.model.config).returned)

    def _no_interface(self) -> ModelError:
        return ModelError(
            f"'{self.model.config.model_type}' does not compute attention through transformers' AttentionInterface, so "
            "query, key, value and context cannot be tapped; use a method on hidden states or vectors, such as "
            "hidden_states, sentence_embedding or aligned_embedding."
        )

    @torch.no_grad()
    def _verify(self, whole: "_WholeRun") -> None:
        """Refuse a model of whose streams one is not that of a whole run without a tap.

        Hidden states are compared with `output_hidden_states`. Query, key, value and context have no name outside of
        their block: each head's vector must be among those that the maps and norms of that very block give, at the
        first token for query and key, which a rotary embedding does not turn there, and for context among those that
        they are given.
        """
        head_size = shape_of(self.model.config).head_size
        name = self.model.config.model_type
        with evaluation_mode(self.model):
            try:
                found = self(whole.input_ids, torch.ones_like(whole.input_ids))
            except KeyError as error:
                raise self._no_interface() from error
            except (RuntimeError, TypeError, ValueError) as error:
                kinds = ", ".join(sorted({key.kind for key in self.keys}))
                raise ModelError(
                    f"'{name}' does not run with a tap on {kinds} "
                    f"({shorten_error(error)}); use a method on hidden states or sentence vectors."
                ) from error
        for key in sorted(self.keys):
            if key.kind in ("embedding", "hidden", "cls"):
                expected = whole.hidden_states[key.layer]
                if key.kind == "cls":
                    expected = expected[:, 0]
                if not _agree(found[key], expected):
                    raise ModelError(
                        f"Layer {key.layer} of '{name}' gives hidden states that differ from its output_hidden_states, "
                        "since the model changes them between its blocks; choose other layers."
                    )
            elif key.kind in ATTENTION_KINDS:
                vectors = whole.given if key.kind == "context" else whole.returned
                tokens = 1 if key.kind in ("query", "key") else len(whole.input_ids[0])
                first_row = found[key][0, :tokens]
                if not _are_among(first_row, vectors[key.layer - 1], head_size):
                    raise ModelError(
                        f"The {key.kind} of layer {key.layer} of '{name}' is not the output of any map of that "
                        "block, so relations of it would mean something else; use a method on hidden states."
                    )

    def _before_base(self, base: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]] | None:
        """Take the mask below a head away where attention goes by offsets: a model would wait to see if it is full."""
        packing = self.recorder.packing
        if packing is None or packing.offsets is None:
            return None
        return args, {**kwargs, "attention_mask": None}

    def _before_decoder(self, decoder: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Give the map onto the vocabulary, the costliest of a model, only the tokens that are scored, if any."""
        hidden = args[0]
        if self._scored is not None:
            hidden = hidden[self._scored]
        if self.leaves_unmade(hidden.shape[:-1].numel()):
            assert isinstance(decoder, nn.Linear)
            dtype = _dtype_of_maps(hidden)
            parts = {"pre_logits": hidden, "output_weight": decoder.weight, "output_bias": decoder.bias}
            self._unmade = {}
            for name, tensor in parts.items():
                if tensor is not None:
                    self._unmade[StreamKey(name, self.depth)] = tensor.to(dtype)
            # The decoder then maps no token at all.
            hidden = hidden[..., :0, :]
        return (hidden, *args[1:])

    def leaves_unmade(self, tokens: int) -> bool:
        """Return whether the logits of so many tokens are too many to be made."""
        if not self._from_hidden or self._decoder is None:
            return False
        weight: Tensor = self._decoder.weight
        return tokens * len(weight) > logits_at_once(weight.device)

    def _tap_attention(self) -> None:
        """Tap through the AttentionInterface, or for families outside of it by hooks on their projections."""
        projections = family_of(self.model.config).projections
        if projections is not None:
            for block in self._blocks:
                self._handles.extend(tap_points.attach_projections(block, self.recorder, projections))
            return
        with quiet(), suppress(ValueError):
            self.model.set_attn_implementation(tap_points.TAPPED_ATTENTION)
        if self.model.config._attn_implementation != tap_points.TAPPED_ATTENTION:
            raise self._no_interface()
        for block in self._blocks:
            tap_points.attach_attention(block, self.recorder)


def _dtype_of_maps(of: PreTrainedModel | Tensor) -> torch.dtype:
    """Return the dtype in which linear maps of a model, or of its hidden states, are computed."""
    device_type = of.device.type
    if torch.is_autocast_enabled(device_type):
        return torch.get_autocast_dtype(device_type)
    return of.dtype


class _WholeRun(NamedTuple):
    """What a model without a tap does with two short rows: its hidden states, and the vectors of each block's maps.

    `given` and `returned` have an item a block: inputs and outputs of the modules with weights, of the first row.
    """

    input_ids: Tensor
    hidden_states: list[Tensor]
    given: list[list[Tensor]]
    returned: list[list[Tensor]]


@torch.no_grad()
def _run_whole(base: PreTrainedModel) -> _WholeRun:
    """Run a model of a family outside of the table as it is, to compare what a tap reads of it."""
    ids = torch.arange(2 * _SHORT, device=base.device).view(2, _SHORT) * 7919 % shape_of(base.config).vocabulary
    entering: list[list[Tensor]] = [[] for _ in blocks(base)]
    returned: list[list[Tensor]] = [[] for _ in entering]

    def note(block: int, module: nn.Module, args: Any, output: Any) -> None:
        for tensors, tensor in ((entering, args[0] if args else None), (returned, output)):
            if isinstance(tensor, Tensor) and tensor.dim() > 2:
                tensors[block].append(tensor[0])

    handles = []
    for number, block in enumerate(blocks(base)):
        for module in block.modules():
            is_map = module._parameters and not module._modules
            if is_map:
                handles.append(module.register_forward_hook(partial(note, number)))
    with evaluation_mode(base):
        output = base(input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True)
    for handle in handles:
        handle.remove()
    states = [*(getattr(output, "hidden_states", None) or ())]
    if len(states) != depth(base.config) + 1:
        raise ModelError(
            f"'{base.config.model_type}' has {depth(base.config)} layers and gives {len(states)} hidden states by "
            "output_hidden_states, so its layers cannot be compared with them; choose another model."
        )
    states[-1] = output.last_hidden_state  # Some families norm it behind the last of them.
    return _WholeRun(ids, states, entering, returned)


@contextmanager
def evaluation_mode(model: nn.Module, dtype: torch.dtype | None = None) -> Iterator[nn.Module]:
    """Yield `model` in eval mode, computing in `dtype`; afterwards every module has the mode it had before.

    Args:
        model: Any module. It is never cast: where `dtype` is not its own, a cast copy is yielded instead.
        dtype: The dtype of weights and activations; None keeps the model's.

    Yields:
        The model, or its cast copy, in eval mode.
    """
    model_dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    if dtype is not None and dtype != model_dtype:
        yield copy.deepcopy(model).to(dtype).eval()
        return
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield model
    finally:
        # Not `model.train(previous)`: that would also switch on parts that were frozen in eval mode on purpose.
        for module, training in modes:
            module.training = training


def _tolerance(dtype: torch.dtype) -> float:
    """Return the share of a tensor's largest number within which two ways of computing it agree."""
    return 1e-4 if dtype in (torch.float32, torch.float64) else 0.05


def _agree(stream: Tensor, expected: Tensor) -> bool:
    """Whether two ways of computing a tensor agree."""
    if stream.shape != expected.shape:
        return False
    largest_error = (stream - expected).abs().max()
    allowed_error = _tolerance(stream.dtype) * expected.abs().max()
    return bool(largest_error <= allowed_error)


def _are_among(stream: Tensor, tensors: list[Tensor], width: int) -> bool:
    """Whether each head's vector of a stream `[L, heads * width]` is among those of some tensors, up to its length."""
    if stream.shape[-1] % width:
        return False
    rows = [tensor.double().reshape(-1, width) for tensor in tensors if tensor.numel() % width == 0]
    if not rows:
        return False
    stream_directions = F.normalize(stream.double().reshape(-1, width), dim=-1)
    directions = F.normalize(torch.cat(rows), dim=-1)
    # For each head's vector the distance to the nearest vector; directions of length 1 allow for more rounding.
    distances = torch.cdist(stream_directions, directions).amin(1)
    return bool(distances.max() <= 10 * _tolerance(stream.dtype))


def _recorded(key: StreamKey) -> StreamKey:
    """Return the stream that hooks record for a key: a CLS vector is taken from its layer's output."""
    if key.kind != "cls":
        return key
    if key.layer == 0:
        return StreamKey("embedding", 0)
    return StreamKey("hidden", key.layer)


def _reads_last_hidden(key: StreamKey, layers: int) -> bool:
    """Whether a stream is made of the last hidden state of a model of so many layers."""
    return key.kind in SENTENCE_KINDS or (key.kind in ("hidden", "cls") and key.layer == layers)


def _logits(output: Any, valid: Tensor) -> Tensor:
    """Return the head's scores; of question answering `[B, 2, L]`, where a padding is never an answer."""
    if "start_logits" not in output:
        logits: Tensor = output.logits
        return logits
    start_and_end = torch.stack([output.start_logits, output.end_logits], dim=1)
    return start_and_end.masked_fill(~valid.unsqueeze(1), float("-inf"))


def _check_key(key: StreamKey, layers: int) -> None:
    """Refuse a stream that a model of this depth does not have."""
    if key.kind not in STREAM_KINDS:
        raise ModelError(f"Unknown stream '{key.kind}'.{suggestion(key.kind, STREAM_KINDS)}")
    lowest = 1
    highest = layers
    if key.kind == "embedding":
        lowest = 0
        highest = 0
    elif key.kind == "cls":
        lowest = 0
    elif key.kind in OF_OUTPUT:
        lowest = layers
    if not lowest <= key.layer <= highest:
        allowed = str(lowest) if lowest == highest else f"{lowest} to {highest}"
        raise ModelError(f"Layer {key.layer} has no stream '{key.kind}': this model's are at {allowed}.")


def _enter_block(recorder: Recorder, layer: int | None, module: nn.Module, args: Any, kwargs: Any) -> None:
    """Note which layer runs now, and keep the first block's input as the embedding output."""
    if layer is None:
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


def _run_needed_part(block: nn.Module, recorder: Recorder, returned: int, *args: Any, **kwargs: Any) -> Any:
    """Run a block only as far as a stream needs it; its return value past that point is never used.

    The early exit is caught here, inside the module that DDP, FSDP or a compiler sees.
    """
    hidden_states = args[0] if args else kwargs["hidden_states"]
    unused = hidden_states
    if returned:
        # The family's blocks return a tuple of this length.
        unused = (hidden_states, *[None] * (returned - 1))
    if recorder.layer > recorder.last_layer:
        return unused
    try:
        return type(block).forward(block, *args, **kwargs)
    except StopForward:
        return unused
