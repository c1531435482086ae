"""A step of a student's start that fits copied layers, in closed form, to deeper hidden states of the source.

The *source* is the model that the student starts from, usually its teacher. A student with fewer layers gives each
copied layer another input than the layer read in the source. The fit makes up for the skipped layers: it changes the
*output map* of a layer, the last linear map of its block, so that the layer's output comes near to a *target*, a hidden
state of the source. Layers are fitted from the first to the last, each on the output of the fitted layers below it.

Axis letters: B texts of a batch, L tokens, n real tokens, F inputs of an output map, S width of the student.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from limbeck.core.records import FittedStart
from limbeck.errors import ModelError
from limbeck.models.evaluation_mode import evaluation_mode
from limbeck.models.families import Shape, base_model, blocks, family_of, shape_of
from limbeck.models.family_table import families, row_of
from limbeck.models.fit_options import FitOptions
from limbeck.models.layer_selection import selected_layers
from limbeck.models.start_step import SourceText, Start, StartSettings, StartStep
from limbeck.models.stop_forward import StopForward
from limbeck.models.streams import StreamKey

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_SMALLEST_SCALE = 1e-6
"""Features whose scale in a norm is smaller, as a share of the largest, are left as they are: they cannot be fitted."""


_SMALLEST_VARIANCE = 1e-30
"""The variance that a target has at least, so that errors of a constant one are numbers."""
_MOST_KEPT_BYTES = 2**30
"""Most bytes of hidden states that a fit keeps, so that the source runs on each text once."""


class Fit(StartStep):
    """Ridge regression of each layer's output map towards its copied weights.

    With z the sum of a token before the norm that ends a block, μ and σ the mean and the scale that this norm divides
    out, g and β its scale and shift, and f the inputs of the output map W, the output y = g (z − μ) / σ + β is the
    target t where W f equals (t − β) / g · σ + μ less the rest of z. With μ and σ of the present output, the change D
    of W minimises

        Σ ‖D f / σ − (t − y) / g‖² + λ ‖D‖²

    over the tokens, with λ = ridge · Σ ‖f / σ‖² / F. A bias is fitted too, without a penalty. A root mean square norm
    has μ = 0 and β = 0. A block that ends with the sum itself has y = z and g = σ, where σ is the scale of z: errors
    are compared as the norm of the next block will read them. In such families the final norm ends the last layer.

    With `pooled` the fit of the last layer has a further row for each text: the means of its tokens' rows.

    The fit is kept if it lowers the squared error of the last layer on text that it has not read. Otherwise the layers
    stay as they were copied. The nearest relatives are for decoders: ReplaceMe (arXiv 2505.02819) merges a linear map
    in place of dropped blocks into the block before them. The normalised regression is limbeck's own.
    """

    name = "fit"
    place = "fit"
    reads_text = True

    def check(self, student: Shape, source: Shape, settings: StartSettings) -> None:
        """Refuse a fit of random layers, of blocks without a known output map, and to layers that do not exist."""
        layers = selected_layers(settings.layers, student.layers, source.layers)
        if not layers:
            raise ModelError(
                "A fit changes layers that are copied from the teacher, but initialise.layers is random; set layers: "
                "ends or a list such as [1, 2, 6], or leave initialise.fit out."
            )
        if row_of(student.model_type).output_map is None:
            known = ", ".join(name for name in families if families[name].output_map is not None)
            raise ModelError(
                f"limbeck cannot fit the layers of {student.model_type}: its blocks do not end with a linear map "
                f"that limbeck knows. Leave initialise.fit out, or choose a student of the family {known}."
            )
        targets_of(_options_of(settings), layers, source)

    def apply(self, start: Start) -> None:
        """Fit the output maps in place, and put the copied weights back if that does not help."""
        options = _options_of(start.settings)
        targets = targets_of(options, start.layers, shape_of(start.source.config))
        student = base_model(start.student)
        outputs = [_LayerOutput.of(student, layer, targets) for layer in range(1, len(targets) + 1)]
        last_output = outputs[-1]
        fitted_outputs = outputs[_unchanged_layers(start, targets) :]
        if not fitted_outputs:
            # Every layer gives its target already.
            return
        text = _Text(start, options.tokens, fitted_outputs)
        copied_weights = [_copied_weights(output.linear) for output in fitted_outputs]

        with evaluation_mode(student):
            error_as_copied = _held_out_error(student, last_output, text)
            tokens = 0
            for output in fitted_outputs:
                pooled = options.pooled if output is last_output else 0.0
                # All layers read the same text, so the last count is that of each.
                tokens = _fit_output(student, output, text, pooled=pooled, ridge=options.ridge)
            error = _held_out_error(student, last_output, text)

        helps = error < error_as_copied
        if helps:
            start.transfer.note_changed(_names_of_weights(student, fitted_outputs))
        else:
            for output, weights in zip(fitted_outputs, copied_weights, strict=True):
                output.linear.load_state_dict(weights)
        start.fit = FittedStart(
            targets=targets,
            tokens=tokens,
            ridge=options.ridge,
            error=error,
            error_as_copied=error_as_copied,
            used=helps,
        )


def targets_of(options: FitOptions, layers: Sequence[int], source: Shape) -> list[int]:
    """The source's layer whose hidden state each student layer is fitted to.

    Args:
        options: The options.
        layers: The source's layer that each student layer is copied from.
        source: The source's shape.

    Returns:
        The targets of the options, if these have some. By default the target of a layer is the hidden state that the
        next copied layer read in the source, but none below the layer's own, and the target of the last layer is the
        source's last: layers 1, 2, 6 of 6 have the targets 1, 5, 6.

    Raises:
        ModelError: for another number of targets than layers, targets that the source lacks, and targets on different
            sides of a final norm than their layers.
    """
    targets = options.targets
    if targets is None:
        # A layer reads the hidden state of the layer before it. The last layer is treated as if the one above the
        # source's last followed.
        next_layers = [*layers[1:], source.layers + 1]
        targets = [max(layer, next_layer - 1) for layer, next_layer in zip(layers, next_layers, strict=True)]
    if len(targets) != len(layers):
        raise ModelError(
            f"initialise.fit.targets has {len(targets)} layers of the teacher, but the student has {len(layers)} "
            "layers; list one teacher layer for each student layer."
        )
    for target in targets:
        if not 1 <= target <= source.layers:
            raise ModelError(
                f"initialise.fit.targets has layer {target}, but this teacher's layers are 1 to {source.layers}."
            )
    has_final_norm = row_of(source.model_type).final_norm is not None
    only_last_is_normed = targets[-1] == source.layers and source.layers not in targets[:-1]
    if has_final_norm and not only_last_is_normed:
        raise ModelError(
            f"initialise.fit.targets is {list(targets)}, but the last hidden state of {source.model_type} has "
            "passed a final norm, which only the student's last layer has; set the last target to "
            f"{source.layers}, and all others below {source.layers}."
        )
    return list(targets)


def _options_of(settings: StartSettings) -> FitOptions:
    """The options of the fit, checked."""
    return FitOptions.model_validate(dict(settings.steps[Fit.name]))


def _unchanged_layers(start: Start, targets: Sequence[int]) -> int:
    """The number of layers, from the first on, that give their targets already and need no fit.

    They are the source's own first layers, above its own embeddings, with their own outputs as targets.
    """
    is_narrower = start.bases.hidden is not None
    if start.embeddings != "copied" or is_narrower:
        return 0
    count = 0
    for number, (layer, target) in enumerate(zip(start.layers, targets, strict=True), start=1):
        if layer != number or target != number:
            # All further layers read other inputs than in the source.
            break
        count = number
    return count


def _copied_weights(linear: nn.Linear) -> dict[str, Tensor]:
    """A copy of the tensors of a map."""
    return {name: tensor.clone() for name, tensor in linear.state_dict().items()}


def _fit_output(student: PreTrainedModel, output: _LayerOutput, text: _Text, *, pooled: float, ridge: float) -> int:
    """Fit the output map of a layer in place, and return the number of tokens that it was fitted to.

    Args:
        student: The student's base model.
        output: The end of the layer.
        text: The text to fit to.
        pooled: Weight of the mean rows of texts, see `Regression`.
        ridge: See `Regression.solve`.
    """
    regression = Regression(output.linear, pooled=pooled)
    for batch, recorded in _recorded_batches(student, output, text, held_out=False):
        features, changes = output.rows(recorded, text.target(batch, output))
        regression.add(features, changes, batch.inputs["attention_mask"])
    regression.solve(ridge)
    return regression.tokens.count


def _names_of_weights(student: PreTrainedModel, outputs: Sequence[_LayerOutput]) -> list[str]:
    """The names of the tensors of output maps in the student's base model."""
    prefixes = {module: name for name, module in student.named_modules()}
    names = []
    for output in outputs:
        names += [f"{prefixes[output.linear]}.{name}" for name in output.linear.state_dict()]
    return names


@dataclass(frozen=True)
class _Recorded:
    """What a forward of the student showed of a layer, for the padded batch.

    Attributes:
        features: f, the inputs of the output map, `[B, L, F]`.
        sums: z, `[B, L, S]`.
        output: y, `[B, L, S]`.
    """

    features: Tensor
    sums: Tensor
    output: Tensor


@dataclass(frozen=True)
class _LayerOutput:
    """The end of a student's layer.

    Attributes:
        linear: The output map.
        block: The layer's block.
        norm: The norm that the output comes out of; None where the block ends with the sum itself.
        scaling_norm: The norm by which a sum is scaled: `norm` or, without one, the final norm, which stands for that
            of the next block.
        target: The source's layer that it is fitted to.
    """

    linear: nn.Linear
    block: nn.Module
    norm: nn.Module | None
    scaling_norm: nn.Module
    target: int

    @classmethod
    def of(cls, student: PreTrainedModel, layer: int, targets: Sequence[int]) -> _LayerOutput:
        """Find the end of a layer.

        Args:
            student: The student's base model.
            layer: The layer, from 1.
            targets: The targets of all layers.
        """
        family = family_of(student.config)
        assert family.output_map is not None
        block = blocks(student)[layer - 1]
        linear = block.get_submodule(family.output_map.linear)
        assert isinstance(linear, nn.Linear)
        target = targets[layer - 1]
        if family.output_map.norm is not None:
            norm = block.get_submodule(family.output_map.norm)
            return cls(linear, block, norm=norm, scaling_norm=norm, target=target)

        # Blocks that end with a sum stand below a final norm. The last layer's target comes out of the source's final
        # norm, so the student's is taken as the end of its last layer.
        assert family.final_norm is not None
        final_norm = student.get_submodule(family.final_norm)
        is_last = layer == len(targets)
        norm_of_layer = final_norm if is_last else None
        return cls(linear, block, norm=norm_of_layer, scaling_norm=final_norm, target=target)

    @contextmanager
    def recording(self) -> Iterator[dict[str, Tensor]]:
        """Yield a dictionary that keeps the tensors of the latest forward, under the names of `_Recorded`'s fields.

        A forward ends with `StopForward` at the end of the layer, since nothing reads the layers above.
        """
        tensors: dict[str, Tensor] = {}

        def keep_features(module: nn.Module, arguments: tuple[Tensor, ...]) -> None:
            tensors["features"] = arguments[0]

        def keep_output(module: nn.Module, arguments: tuple[Tensor, ...], output: Tensor | tuple[Tensor, ...]) -> None:
            hidden = output[0] if isinstance(output, tuple) else output
            tensors["output"] = hidden
            # A block that ends with the sum returns it; a norm reads it.
            tensors["sums"] = hidden if self.norm is None else arguments[0]
            raise StopForward

        last_module = self.block if self.norm is None else self.norm
        handles = [self.linear.register_forward_pre_hook(keep_features), last_module.register_forward_hook(keep_output)]
        try:
            yield tensors
        finally:
            for handle in handles:
                handle.remove()

    def rows(self, recorded: _Recorded, target: Tensor) -> tuple[Tensor, Tensor]:
        """The rows that a padded batch adds to the regression, in float64.

        The output map reads the features f. The layer's output is y, σ is the scale that its norm divides by, and g the
        scale that the norm multiplies by; see `Fit`.

        Args:
            recorded: The features f, the sums before the norm, and the output y.
            target: t, `[B, L, S]`.

        Returns:
            The features (f, 1) / σ, `[B, L, F + 1]`, whose 1 is for the bias; and what the change of the map is to give
            for them, (t − y) / g, `[B, L, S]`.
        """
        scale = _scale_of(self.scaling_norm, recorded.sums.double())
        features = nn.functional.pad(recorded.features.double(), (0, 1), value=1.0) / scale
        errors = target - recorded.output.double()
        if self.norm is None:
            # A block that ends with the sum itself has g = σ.
            return features, errors / scale

        weight = self.norm.weight
        assert isinstance(weight, Tensor)
        gains = weight.double()
        # A feature that the norm scales to nearly nothing would need an endless change.
        can_be_fitted = gains.abs() > _SMALLEST_SCALE * gains.abs().max()
        return features, torch.where(can_be_fitted, errors / gains, 0.0)


def _scale_of(norm: nn.Module, sums: Tensor) -> Tensor:
    """σ of sums `[B, L, S]` in a norm: their standard deviation or their root mean square, `[B, L, 1]`."""
    if isinstance(norm, nn.LayerNorm):
        return (sums.var(-1, keepdim=True, correction=0) + norm.eps).sqrt()
    # The root mean square norms of transformers name their epsilon so.
    epsilon = float(norm.variance_epsilon)  # type: ignore[arg-type]  # Modules do not declare what others set.
    return (sums.square().mean(-1, keepdim=True) + epsilon).sqrt()


@dataclass
class _Sums:
    """Sums over rows a = (features, 1) and b of a regression, in float64 on the CPU.

    Attributes:
        products: Σ aᵀ [a, b], `[F + 1, F + 1 + S]`.
        count: Number of rows.
    """

    products: Tensor
    count: int = 0

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Take in rows `[n, F + 1]` and `[n, S]`."""
        inputs = features.shape[1]
        self.products[:, :inputs] += _gram(features).cpu()
        self.products[:, inputs:] += (features.T @ targets).cpu()
        self.count += len(features)


def _gram(rows: Tensor) -> Tensor:
    """aᵀ a of rows `[n, F]`, `[F, F]`."""
    if rows.device.type != "cpu":
        return rows.T @ rows
    # numpy sees that both factors are one matrix, and computes a half of the symmetric product.
    array = rows.numpy()
    return torch.from_numpy(array.T @ array)


@dataclass
class Regression:
    """The regression of an output map towards its present weights.

    Args:
        linear: The output map, F to S.
        pooled: Weight of the mean rows of all texts together, where the rows of all tokens together weigh 1; 0 leaves
            them out.

    Attributes:
        tokens: Sums over the rows of tokens.
        texts: Sums over the mean rows of texts.
    """

    linear: nn.Linear
    pooled: float = 0.0
    tokens: _Sums = field(init=False)
    texts: _Sums = field(init=False)

    def __post_init__(self) -> None:
        inputs = self.linear.in_features + 1
        shape = (inputs, inputs + self.linear.out_features)
        self.tokens = _Sums(torch.zeros(shape, dtype=torch.float64))
        self.texts = _Sums(torch.zeros(shape, dtype=torch.float64))

    def add(self, features: Tensor, targets: Tensor, mask: Tensor) -> None:
        """Take in a batch of texts.

        Args:
            features: Rows of tokens with a last entry for the bias, float64 `[B, L, F + 1]`.
            targets: What the change of the map is to give for them, float64 `[B, L, S]`.
            mask: `[B, L]`, nonzero where a token is real.
        """
        is_real = mask.bool()
        text_of_token = is_real.nonzero()[:, 0]
        tokens_of_text = is_real.sum(1).clamp(min=1).unsqueeze(1)
        # [n, F + 1] and [n, S]; padding may hold anything.
        features = features[is_real]
        targets = targets[is_real]
        self.tokens.add(features, targets)
        if self.pooled:
            mean_features = _sums_by_text(features, text_of_token, len(mask)) / tokens_of_text
            mean_targets = _sums_by_text(targets, text_of_token, len(mask)) / tokens_of_text
            self.texts.add(mean_features, mean_targets)

    @torch.no_grad()
    def solve(self, ridge: float) -> None:
        """Change the map in place.

        Args:
            ridge: λ as a share of the summed squares of the features, of one feature on average; more than 0.

        Raises:
            ModelError: for sums that are not finite.
        """
        products = self.tokens.products
        if self.pooled:
            # All texts together weigh `pooled` times as much as all tokens together.
            weight_of_text = self.pooled * self.tokens.count / self.texts.count
            products = products + weight_of_text * self.texts.products
        if not products.isfinite().all():
            raise ModelError(
                "The teacher's hidden states, to which the student is fitted, are not all finite numbers; leave "
                "initialise.fit out, or start from another model."
            )
        inputs = self.linear.in_features
        # The products Σ aᵀ a and Σ aᵀ b of the rows, see `_Sums`. The last entry of a is the 1 for the bias. A map
        # without a bias leaves it out.
        size = inputs if self.linear.bias is None else inputs + 1
        gram = products[:size, :size]
        with_targets = products[:size, inputs + 1 :]
        # λ for the weights, and 0 for the bias.
        penalty = torch.zeros(size, dtype=gram.dtype)
        penalty[:inputs] = ridge * gram.diagonal()[:inputs].mean()
        # [F or F + 1, S].
        change = torch.linalg.solve(gram + penalty.diag(), with_targets).to(self.linear.weight.device)
        self.linear.weight.add_(change[:inputs].T)
        if self.linear.bias is not None:
            self.linear.bias.add_(change[-1])


def _sums_by_text(rows: Tensor, text_of_token: Tensor, texts: int) -> Tensor:
    """The sum of the rows of each text's tokens, `[texts, width]`.

    Args:
        rows: A row for each token, `[n, width]`.
        text_of_token: The index of each token's text, `[n]`.
        texts: Number of texts.
    """
    return rows.new_zeros(texts, rows.shape[1]).index_add(0, text_of_token, rows)


class _Text:
    """The text of a fit, which is read in passes: the held-out text, the text once for each layer, the held-out text.

    The hidden states of the source are kept between passes, unless they are too large.

    Args:
        start: The start, whose `tick` receives the tokens that all passes have read.
        tokens: Tokens to fit to.
        outputs: The ends of the layers that are fitted.
    """

    def __init__(self, start: Start, tokens: int, outputs: Sequence[_LayerOutput]) -> None:
        self.start = start
        self._tokens = tokens
        self._layers = len(outputs)
        # Each layer's target, in float32.
        bytes_of_token = 4 * len(outputs) * shape_of(start.source.config).hidden
        self._streams: list[StreamKey] = []
        if tokens * bytes_of_token <= _MOST_KEPT_BYTES:
            self._streams = [_stream_of(output) for output in outputs]
        # The batches of the text and of the held-out text with these streams, once they are read.
        self._kept: dict[bool, list[SourceText]] = {}
        # Tokens of a pass over each text: about these, until one pass has counted them.
        self._tokens_to_fit = tokens
        self._tokens_held_out = math.ceil(tokens / 10)
        self._tokens_read = 0

    def batches(self, output: _LayerOutput, *, held_out: bool) -> Iterator[SourceText]:
        """Read the text in batches, each with the hidden state of the source that a layer is fitted to.

        Args:
            output: The end of the layer.
            held_out: Read other text, of a tenth as many tokens, which is never fitted to.
        """
        tokens_before = self._tokens_read
        for batch in self._batches_of_pass(output, held_out=held_out):
            yield batch
            self._tokens_read += int(batch.inputs["attention_mask"].sum())
            self._show_progress()

        tokens_of_pass = self._tokens_read - tokens_before
        if not held_out:
            self._tokens_to_fit = tokens_of_pass
            return
        # A text that has fewer held-out tokens than asked for has fewer to fit to as well: the other nine tenths.
        is_short_text = tokens_of_pass < self._tokens_held_out
        if is_short_text and self._tokens_to_fit == self._tokens:
            self._tokens_to_fit = 9 * tokens_of_pass
        self._tokens_held_out = tokens_of_pass

    def _batches_of_pass(self, output: _LayerOutput, *, held_out: bool) -> Iterator[SourceText]:
        """Go through kept batches, or run the source on the text."""
        if held_out in self._kept:
            yield from self._kept[held_out]
            return
        assert self.start.texts is not None
        vocabulary_size = self.start.student.get_input_embeddings().num_embeddings
        streams = self._streams or [_stream_of(output)]
        read: list[SourceText] = []
        for batch in self.start.texts(streams, tokens=self._tokens, held_out=held_out):
            if int(batch.inputs["input_ids"].max()) >= vocabulary_size:
                raise ModelError(
                    "The student has another vocabulary than the model that it starts from, so the two cannot read the "
                    "same tokens; leave initialise.fit out."
                )
            if self._streams:
                read.append(batch)
            yield batch
        if self._streams:
            self._kept[held_out] = read

    def _show_progress(self) -> None:
        """Report how many tokens of all passes are read."""
        total = self._layers * self._tokens_to_fit + 2 * self._tokens_held_out
        # A first pass may read a few more tokens than it was asked for.
        done = min(self._tokens_read, total)
        self.start.tick(done, total, "tokens")

    def target(self, batch: SourceText, output: _LayerOutput) -> Tensor:
        """The target of a layer, float64 `[B, L, S]`, in the directions that a narrower student keeps."""
        states = batch.streams[_stream_of(output)].double()
        basis = self.start.bases.hidden
        return states if basis is None else states @ basis.double()


def _stream_of(output: _LayerOutput) -> StreamKey:
    """The source's stream that a layer is fitted to."""
    return StreamKey("hidden", output.target)


def _recorded_batches(
    student: PreTrainedModel, output: _LayerOutput, text: _Text, *, held_out: bool
) -> Iterator[tuple[SourceText, _Recorded]]:
    """Run the student on the text, and go through its batches with what each forward showed of a layer."""
    with output.recording() as tensors:
        for batch in text.batches(output, held_out=held_out):
            with suppress(StopForward):
                student(**batch.inputs)
            yield batch, _Recorded(**tensors)


def _held_out_error(student: PreTrainedModel, output: _LayerOutput, text: _Text) -> float:
    """The squared error of a layer on text that is not fitted to, as a share of the variance of its target.

    Raises:
        ModelError: where no text is left for it.
    """
    squared_error = 0.0
    sum_of_squares = 0.0
    sum_of_targets: Tensor = torch.zeros(shape_of(student.config).hidden, dtype=torch.float64)
    tokens = 0
    for batch, recorded in _recorded_batches(student, output, text, held_out=True):
        is_real = batch.inputs["attention_mask"].bool()
        targets = text.target(batch, output)[is_real]
        outputs = recorded.output[is_real].double()
        squared_error += float((outputs - targets).square().sum())
        sum_of_squares += float(targets.square().sum())
        sum_of_targets += targets.sum(0).cpu()
        tokens += len(targets)
    if tokens < 2:
        raise ModelError(
            "There is too little text to fit the student's layers and to test the result; give at least 10 texts, "
            "or copy the layers alone (student.initialise.fit: null)."
        )
    # Σ ‖t − t̄‖² = Σ ‖t‖² − ‖Σ t‖² / n over n tokens, with t̄ the mean of the targets t.
    variance = sum_of_squares - float(sum_of_targets.square().sum()) / tokens
    return squared_error / max(variance, _SMALLEST_VARIANCE)
