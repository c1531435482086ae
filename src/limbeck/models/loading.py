"""Loading configurations, models and tokenizers: safetensors only, no remote code, one clear line when it fails."""

from __future__ import annotations

import copy
import json
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
from safetensors import safe_open
from transformers import (
    CONFIG_MAPPING,
    AutoTokenizer,
    BatchEncoding,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from limbeck.errors import ModelError, shorten_error, suggestion
from limbeck.models.configuration import DTYPES, read_config
from limbeck.models.families import base_model, family_of, pooler_option, shape_of
from limbeck.models.heads import Head, copy_head, head_of, model_class
from limbeck.models.locating import check_fetched, fetch, fetch_weights, read_json

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# Without one of these `transformers` makes up a tokenizer of five tokens instead of failing.
_TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "sentencepiece.bpe.model",
    "spiece.model",
    "tokenizer.model",
)
_BESIDE_TOKENIZERS = (
    "config.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "merges.txt", "*.jinja",
)  # fmt: skip
# Numbers that a configuration may describe beyond those that its weights hold: what is drawn anew, rounded up.
_FEW_NUMBERS = 50_000_000
_SHORT_ROW = 8
_SPECIAL = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")
# Case, accents, punctuation, digits, wide characters and runs of spaces, on which normalisers disagree.
_PROBES = (
    "The limbeck stands in the cellar.",
    "THE LIMBECK Stands",
    "naïve café, Ångström",
    "don't  stop -- e.g. 3.14 (50%)",
    "蒸馏 дистилляция تقطير",
    "ﬁne ½ ™\tＡＢＣ",
)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers', huggingface_hub's and sentence-transformers' logs, and the first's progress bars.

    The bars of downloads stay as they are: whoever has them on waits for gigabytes. The previous settings are put back
    at the end. Errors still raise.
    """
    loggers = [logging.getLogger(name) for name in ("huggingface_hub", "sentence_transformers")]
    level, levels = transformers_logging.get_verbosity(), [logger.level for logger in loggers]
    bars, hub_bars = transformers_logging.is_progress_bar_enabled(), not are_progress_bars_disabled()
    transformers_logging.set_verbosity(logging.CRITICAL)
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    with warnings.catch_warnings(action="ignore"):  # That HF_HUB_DISABLE_PROGRESS_BARS has priority.
        transformers_logging.disable_progress_bar()
        if hub_bars:  # Switched off too by that.
            enable_progress_bars()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        for logger, before in zip(loggers, levels, strict=True):
            logger.setLevel(before)
        if bars and hub_bars:
            transformers_logging.enable_progress_bar()


def load_config(name_or_path: str | Path, revision: str | None = None) -> PreTrainedConfig:
    """Read a model's configuration; no weight is touched.

    Args:
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        revision: A branch, tag or commit on the Hub.

    Raises:
        ModelError: for a missing folder, package or `config.json`, an unreadable one, an unknown family, or a
            Hub name that cannot be reached.
    """
    return read_config(name_or_path, _fetched(name_or_path, revision, ("config.json",)))


def load_model(
    name_or_path: str | Path,
    *,
    dtype: str | torch.dtype | None = None,
    revision: str | None = None,
    head: Head | None = None,
    pooler: bool = False,
) -> PreTrainedModel:
    """Load a model, in eval mode, on the CPU.

    Args:
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        dtype: Type of the weights, for example `"bfloat16"`; None is float32 whatever the file holds.
        revision: A branch, tag or commit on the Hub.
        head: None for the Transformer alone (without its pooler, where the class can leave it out),
            or the task whose head is loaded too: `"masked_lm"`, `"classification"`, `"regression"`,
            `"question_answering"` or `"token_classification"`.
        pooler: Keep the pooler of a model without a head, where its checkpoint has one.

    Returns:
        The model. Every tensor of it comes from the checkpoint: nothing is left at random values.

    Raises:
        ModelError: for everything `load_config` refuses; weights that are missing, pickled, damaged or
            incomplete; a checkpoint without the head that is asked for; an unknown `dtype`.
    """
    wanted = as_dtype(dtype)
    config = load_config(name_or_path, revision)
    loader = model_class(config, head)
    options: dict[str, Any] = {} if pooler else pooler_option(loader)
    model, info = load_class(loader, name_or_path, config, dtype=wanted, revision=revision, **options)
    if info["mismatched_keys"]:
        key, stored, needed = sorted(info["mismatched_keys"])[0]
        raise ModelError(
            f"The weights of '{name_or_path}' do not fit its config.json: '{key}' is {list(stored)} in the file and "
            f"{list(needed)} by the configuration; copy or download the model again."
        )
    # A pooler that the class insists on is harmless: no stream is read from it.
    missing = sorted(key for key in info["missing_keys"] if "pooler" not in key)
    if pooler and head is None and len(missing) < len(info["missing_keys"]):
        return load_model(name_or_path, dtype=dtype, revision=revision)
    if missing:
        if head is not None:
            raise ModelError(f"'{name_or_path}' holds no {head} head ({missing[0]} is missing); load it without one.")
        raise ModelError(
            f"The weights of '{name_or_path}' lack {len(missing)} tensors of {type(model).__name__} (first "
            f"{missing[0]}); save it whole again."
        )
    check_finite(name_or_path, model)
    return model


def check_finite(name_or_path: str | Path, model: PreTrainedModel) -> None:
    """Refuse a model with a weight that is infinite or no number.

    Args:
        name_or_path: Where it was loaded from, for the message.
        model: The model as it was loaded.

    Raises:
        ModelError: for the first such tensor.
    """
    for key, tensor in model.named_parameters():
        if tensor.numel() and not all(torch.isfinite(end) for end in torch.aminmax(tensor)):
            half = "or too large for it, so use float32; else " if tensor.dtype.itemsize < 4 else ""
            raise ModelError(
                f"The weights of '{name_or_path}' are damaged: '{key}' holds values that are not finite numbers in "
                f"{str(tensor.dtype).removeprefix('torch.')}; {half}copy or download the model again."
            )


def load_class(
    loader: type[PreTrainedModel],
    name_or_path: str | Path,
    config: PreTrainedConfig,
    *,
    dtype: torch.dtype = torch.float32,
    revision: str | None = None,
    **options: Any,
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load a model of a class, with everything that its checkpoint lacks or that does not fit at random values.

    Args:
        loader: The class.
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        config: The configuration.
        dtype: Type of the weights.
        revision: A branch, tag or commit on the Hub.
        **options: Keyword arguments of the class.

    Returns:
        The model, and the loading info of `transformers`: missing and mismatched keys.

    Raises:
        ModelError: for weights that are missing, pickled or damaged.
    """
    options |= {"output_loading_info": True, "ignore_mismatched_sizes": True, "trust_remote_code": False}
    with quiet(), ExitStack() as opened:
        tensors: dict[str, Any] = {}
        for file in fetch_weights(name_or_path, revision):
            pointer = opened.enter_context(safe_open(str(file), framework="pt"))
            tensors |= {key: pointer.get_slice(key) for key in pointer.keys()}  # noqa: SIM118 - no mapping
        _check_extent(name_or_path, config, tensors)
        try:
            # Without a name `transformers` looks for no adapter, no other weights and no way of quantising.
            found: Any = loader.from_pretrained(None, config=config, state_dict=tensors, dtype=dtype, **options)
        except Exception as error:  # Each wrong value has its own kind.
            raise ModelError(
                f"The model in '{name_or_path}' cannot be built or read: {shorten_error(error)}"
            ) from error
    model, info = found
    model.name_or_path = model.config.name_or_path = str(name_or_path)
    return model, info


def _check_extent(name: str | Path, config: PreTrainedConfig, tensors: Mapping[str, Any]) -> None:
    """Refuse weights that are far smaller than the model of the configuration, which would be made at random first."""
    stored = sum(math.prod(tensor.get_shape()) for tensor in tensors.values())
    shape = shape_of(config)
    blocks = 1 if family_of(config).shared_blocks else shape.layers
    described = blocks * shape.hidden * (2 * shape.hidden + 2 * shape.ffn) + shape.vocabulary * shape.embedding
    described += (shape.positions or 0) * shape.hidden * isinstance(getattr(config, "hidden_dropout_prob", None), float)
    if described > 4 * stored + _FEW_NUMBERS:
        raise ModelError(
            f"The config.json of '{name}' describes a model of {described:,} numbers, but its weights hold {stored:,}; "
            "copy or download the model again."
        )


def load_tokenizer(name_or_path: str | Path, *, revision: str | None = None) -> PreTrainedTokenizerBase:
    """Load a tokenizer.

    Args:
        name_or_path: A folder, `package:NAME` (see `resolve_model`), or a Hub name.
        revision: A branch, tag or commit on the Hub.

    Raises:
        ModelError: for a missing folder, one without tokenizer files, unreadable ones, or a Hub name that
            cannot be reached.
    """
    folder = _fetched(name_or_path, revision, (*_TOKENIZER_FILES, *_BESIDE_TOKENIZERS))
    if not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        check_fetched(name_or_path)
        raise ModelError(f"The folder '{name_or_path}' has no tokenizer; save the model's tokenizer there.")
    config = read_config(name_or_path, folder)
    named = _check_tokenizer(name_or_path, folder, config)
    with quiet():
        try:
            # A file that is named by the settings is not read: the folder's own is.
            options = dict.fromkeys(named)
            found = AutoTokenizer.from_pretrained(
                str(folder), config=config, local_files_only=True, trust_remote_code=False, **options
            )
        except Exception as error:  # Each wrong value has its own kind.
            raise ModelError(f"The tokenizer of '{name_or_path}' cannot be read: {shorten_error(error)}") from error
    tokenizer: PreTrainedTokenizerBase = found
    for key in ("auto_map", *named):
        tokenizer.init_kwargs.pop(key, None)
    return tokenizer


def _check_tokenizer(name: str | Path, folder: Path, config: PreTrainedConfig) -> list[str]:
    """Return the settings of a tokenizer that name files, after refusing those that lead to other code or files."""
    settings = read_json(folder / "tokenizer_config.json", {})
    for key in ("fast_tokenizer_files", "init_inputs"):
        if settings.get(key):
            raise ModelError(
                f"The tokenizer_config.json of '{name}' names files by '{key}', but limbeck reads a tokenizer's "
                "files only by their usual names: remove the key."
            )
    kinds: list[Any] = [settings.get("tokenizer_class"), getattr(config, "tokenizer_class", None)]
    for kind in filter(None, map(str, kinds)):
        for spelling in (kind, kind.removesuffix("Fast"), f"{kind}Fast"):
            found = getattr(transformers, spelling, PreTrainedTokenizerBase) if spelling.isidentifier() else None
            if not (isinstance(found, type) and issubclass(found, PreTrainedTokenizerBase)):
                raise ModelError(f"The tokenizer of '{name}' is declared as a '{kind[:80]}', which is not a tokenizer.")
    return [key for key in settings if key.endswith("_file")]


def _fetched(name: str | Path, revision: str | None, files: Sequence[str]) -> Path:
    with quiet():
        return fetch(name, revision, files)


def as_dtype(dtype: str | torch.dtype | None) -> torch.dtype:
    """Return the floating-point type that is named; None is float32.

    Raises:
        ModelError: for a name that is not one of float32, float16, bfloat16, float64.
    """
    if isinstance(dtype, torch.dtype):
        return dtype
    name = "float32" if dtype is None else dtype
    if name not in DTYPES:
        raise ModelError(f"Unknown dtype '{name}'.{suggestion(name, DTYPES)}")
    return DTYPES[name]


def check_runs(name: str | Path, config: PreTrainedConfig, head: Head | None = None) -> None:
    """Refuse a configuration whose model cannot be built or run, by a run of one row that takes no memory.

    Costs some 0.1 s for BERT-base, once a configuration and head, behind an import of seconds. A configuration that
    has nothing but other sizes than its family's usual one is known to run, and is not tried.

    Args:
        name: The model, as the user named it.
        config: Its configuration.
        head: Its head, or None.

    Raises:
        ModelError: with what the model stumbles over: an activation that is not there, ids out of range, widths that
            do not divide.
    """
    if not _is_usual(config) and (problem := _problem_of_run(config.to_json_string(use_diff=False), head)):
        raise ModelError(f"The model of '{name}' cannot be run with its configuration: {problem}")


# Families whose usual model runs whatever its sizes are, where heads divide the width; a test tries them.
_RUN_AT_ANY_SIZE = ("bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
_SIZES = frozenset({
    "attention_dropout", "attention_probs_dropout_prob", "dim", "dropout", "embedding_size", "hidden_dim",
    "hidden_dropout_prob", "hidden_size", "initializer_range", "intermediate_size", "layer_norm_eps",
    "max_position_embeddings", "n_heads", "n_layers", "num_attention_heads", "num_hidden_layers", "pad_token_id",
    "qa_dropout", "seq_classif_dropout", "type_vocab_size", "vocab_size",
})  # fmt: skip
_OF_NO_CONSEQUENCE = frozenset({
    "_name_or_path", "architectures", "bos_token_id", "classifier_dropout", "dtype", "eos_token_id",
    "gradient_checkpointing", "id2label", "label2id", "name_or_path", "output_past", "problem_type",
    "sentence_transformers", "summary_use_proj", "tie_weights_", "transformers_version", "use_cache",
})  # fmt: skip


def _is_usual(config: PreTrainedConfig) -> bool:
    """Whether a configuration differs from its family's usual one in sizes alone, all of which fit together."""
    shape, padding = shape_of(config), config.pad_token_id
    if config.model_type not in _RUN_AT_ANY_SIZE or shape.hidden % shape.heads:
        return False
    if padding is not None and not 0 <= padding < shape.vocabulary:
        return False
    usual, values = type(config)().to_dict(), config.to_dict()
    if values.pop("position_embedding_type", "absolute") != "absolute":
        return False
    other = {key for key in values if key not in usual or values[key] != usual[key]}
    return other <= _SIZES | _OF_NO_CONSEQUENCE


@lru_cache(maxsize=256)
def _problem_of_run(text: str, head: Head | None) -> str | None:
    values = json.loads(text)
    config = CONFIG_MAPPING[values["model_type"]](**values)
    row = torch.zeros((1, min(_SHORT_ROW, shape_of(config).positions or _SHORT_ROW)), dtype=torch.long, device="meta")
    with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"), warnings.catch_warnings(action="ignore"):
        try:
            model_class(config, head)(config)(input_ids=row)
        except Exception as error:  # Each wrong value has its own kind.
            # A causal mask of GPT-2 asks for numbers, by which time the model is built.
            return None if "on meta tensors" in str(error) else shorten_error(error)
    return None


def same_tensors(config: PreTrainedConfig, other: PreTrainedConfig) -> bool:
    """Return whether models of two configurations have the same tensors; no weight is read or made.

    The number of heads may differ where no tensor depends on it: MLKD-BERT's students with fewer heads start from
    TinyBERT's (section 4.2).
    """
    shape, others = shape_of(config), shape_of(other)
    alike = replace(others, heads=shape.heads, key_value_heads=shape.key_value_heads, head_size=shape.head_size)
    if shape == others:
        return True
    if shape != alike:
        return False
    sizes = []
    with torch.device("meta"), quiet():
        for one in (config, other):
            model = model_class(one)(copy.deepcopy(one))
            sizes.append({name: tensor.shape for name, tensor in model.state_dict().items()})
    return sizes[0] == sizes[1]


@torch.no_grad()
def load_checkpoint(student: PreTrainedModel, name_or_path: str | Path) -> list[str]:
    """Set the student's weights from a saved model with the same tensors, in place.

    A task head and a pooler are set too where the checkpoint has the same, else they stay as they are. Configurations
    are compared before any weight is read, see `same_tensors`.

    Args:
        student: With or without a head.
        name_or_path: The earlier student: a folder, `package:NAME`, or a Hub name.

    Returns:
        Names of the tensors that were set.

    Raises:
        ModelError: for everything `load_model` refuses, and a checkpoint of another shape.
    """
    config = load_config(name_or_path)
    ours, theirs = shape_of(student.config), shape_of(config)
    if not same_tensors(student.config, config):
        raise ModelError(
            f"The checkpoint '{name_or_path}' is {theirs}, vocabulary {theirs.vocabulary}, positions "
            f"{theirs.positions}; the student is {ours}, vocabulary {ours.vocabulary}, positions "
            f"{ours.positions}: give the student that shape, or start it from the checkpoint's layers with "
            "it as the teacher."
        )
    head = head_of(config) if type(student).__name__ in (config.architectures or []) else None
    target = base_model(student).state_dict()
    poolers = [name for name in target if name.startswith("pooler.")]
    source = load_model(name_or_path, head=head, pooler=bool(poolers))
    given = base_model(source).state_dict()
    target = {name: tensor for name, tensor in target.items() if name in given or name not in poolers}
    lacking = [name for name in target if name not in given or given[name].shape != target[name].shape]
    if lacking:
        raise ModelError(
            f"The checkpoint '{name_or_path}' has no tensor that fits '{lacking[0]}' ({len(lacking)} in "
            "all); derive the student's configuration from that of its start."
        )
    for name, tensor in target.items():
        tensor.copy_(given[name])
    return list(dict.fromkeys([*target, *copy_head(student, source)]))


def check_same_vocabulary(student: PreTrainedTokenizerBase, teacher: PreTrainedTokenizerBase) -> None:
    """Refuse tokenizers that would give student and teacher different tokens for the same text.

    Compares the ids of all tokens, the special tokens, and how a few probe strings are split, which shows
    differences of case, accents and punctuation that the vocabulary alone hides.

    Raises:
        ModelError: naming the first difference, and what to do.
    """
    way_out = "both must read the same tokens: leave out the student's tokenizer to use the teacher's"
    ours, theirs = student.get_vocab(), teacher.get_vocab()
    differing = [token for token in ours.keys() | theirs.keys() if ours.get(token) != theirs.get(token)]
    if differing:
        first = sorted(differing, key=lambda t: (min(ours.get(t, len(ours)), theirs.get(t, len(theirs))), t))[:3]
        examples = ", ".join(f"{t!r} is {ours.get(t, 'missing')} and {theirs.get(t, 'missing')}" for t in first)
        raise ModelError(
            f"The vocabularies of student ({len(ours)} tokens) and teacher ({len(theirs)}) differ in "
            f"{len(differing)} tokens: {examples}; {way_out}."
        )
    for kind in _SPECIAL:
        ours_id, theirs_id = getattr(student, f"{kind}_token_id"), getattr(teacher, f"{kind}_token_id")
        if ours_id != theirs_id:
            raise ModelError(f"The {kind} token of student ({ours_id}) and teacher ({theirs_id}) differ; {way_out}.")
    for probe in _PROBES:
        if student(probe)["input_ids"] != teacher(probe)["input_ids"]:
            raise ModelError(
                f"Student and teacher have the same vocabulary but split text differently: {probe!r} gives "
                f"{student.tokenize(probe)[:4]} and {teacher.tokenize(probe)[:4]}; {way_out}."
            )


# What `transformers` takes over into a tokenizer's settings from the calls that made it, or that it was saved after.
_OF_CALLS = ("max_length", "stride", "truncation_strategy", "pad_to_multiple_of", "local_files_only")


def plain_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """Copy a tokenizer without the padding and truncation that calls, or its own file, have left in it.

    Each call rewrites these settings inside the fast tokenizer, so that one in use is left alone.
    """
    plain = copy.deepcopy(tokenizer)
    backend = getattr(plain, "backend_tokenizer", None)
    if backend is not None:
        backend.no_padding()
        backend.no_truncation()
    for key in _OF_CALLS:
        plain.init_kwargs.pop(key, None)
    return plain


def save_tokenizer(
    folder: Path, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel, longest: int | None = None
) -> None:
    """Write a tokenizer beside its model, see `plain_tokenizer`: whoever loads it would otherwise read texts cut.

    Args:
        folder: The model's.
        tokenizer: Left as it is.
        model: Whose longest input bounds `model_max_length`.
        longest: Another bound in tokens, such as that of sentence vectors; None where there is none.
    """
    plain = plain_tokenizer(tokenizer)
    bounds = (plain.model_max_length, shape_of(model.config).positions, longest)
    plain.model_max_length = min(bound for bound in bounds if bound)
    plain.save_pretrained(str(folder))


def encode_texts(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[str | tuple[str, str]], **options: Any
) -> BatchEncoding:
    """Tokenise texts and pairs, whatever padding and truncation the tokenizer's file fixes.

    Args:
        tokenizer: Left as it is.
        texts: The texts.
        options: Of the call, such as `max_length` with `truncation=True`.
    """
    return plain_tokenizer(tokenizer)(list(texts), padding=False, verbose=False, **options)


def check_fits_model(tokenizer: PreTrainedTokenizerBase, vocabulary: int) -> None:
    """Refuse a tokenizer with ids that a model with `vocabulary` embedding rows does not have.

    A model may have more rows than tokens (padded for speed), never fewer.

    Raises:
        ModelError: naming the highest id.
    """
    highest = max(tokenizer.get_vocab().values(), default=-1)
    if highest >= vocabulary:
        raise ModelError(
            f"The tokenizer has token ids up to {highest} but the model only {vocabulary} embedding rows; "
            "use the tokenizer that was saved with the model."
        )
