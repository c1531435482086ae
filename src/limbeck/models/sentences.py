"""Sentence vectors: what a sentence-transformers folder says of them; `sentence_heads` makes them of hidden states."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from limbeck.core import import_when_used
from limbeck.errors import ModelError, suggestion
from limbeck.models.locating import MODULES, fetch, fetch_modules, folder_inside, is_local, read_json, resolve_model

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

    from limbeck.models.sentence_heads import SentenceHead as SentenceHead
    from limbeck.models.sentence_heads import pool as pool

__getattr__, _ = import_when_used("limbeck.models", {"sentence_heads": "SentenceHead pool"})

POOLINGS = ("mean", "cls", "max", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
"""Ways to make one vector of those of a text's tokens; several joined by `+` are concatenated in their order."""

ModuleKind: TypeAlias = Literal["Dense", "LayerNorm", "Normalize"]

_MOST_TOKENS = 100_000_000
_MOST_WIDTH = 1_000_000
_LONGEST_PROMPT = 100_000
_VECTOR = "sentence_embedding"
LIBRARY_CONFIG = "config_sentence_transformers.json"
"""The file in which sentence-transformers keeps prompts, similarity, and activations of cross-encoders."""
TRAINED_WIDTHS = "matryoshka_dimensions"
"""The key of `config.json` with the widths to which a model's vectors were trained to be cut, which vLLM reads too."""
_HIDDEN = "last_hidden_state"
# Arguments of a tokenizer by which a text has the same tokens.
_HARMLESS, _USUAL = ("padding", "pad_to_multiple_of", "return_tensors"), [("truncation", True)]
_SIMILARITIES = ("cosine", "dot", "euclidean", "manhattan")
# Modules of sentence-transformers that limbeck does not apply, with the reason.
_NOT_APPLIED = {
    "Router": "it sends queries and documents to different models; give one of them",
    "Asym": "it sends queries and documents to different models; give one of them",
    "StaticEmbedding": "it has no Transformer to distil",
    "WordEmbeddings": "it has no Transformer to distil",
    "BoW": "it has no Transformer to distil",
    "CLIPModel": "it reads pictures too",
    "WeightedLayerPooling": "it mixes all layers; limbeck pools the last one",
    "WordWeights": "it weights words by its own list",
    "CNN": "it has layers between Transformer and pooling",
    "LSTM": "it has layers between Transformer and pooling",
}


@dataclass(frozen=True)
class SentenceModule:
    """A module behind the pooling.

    Attributes:
        kind: `Dense` is activation(W x + b), or with `residual` that plus x (or R x); `LayerNorm` and `Normalize` (to
            length one) are as they are called.
        folder: Of its weights; None where it has none.
        widths: Of its input and output, where its files say so.
        bias: Of `Dense`: whether it adds b.
        activation: Of `Dense`: name of a class in `torch.nn`.
        residual: Of `Dense`: whether its input is added.
    """

    kind: ModuleKind
    folder: Path | None = None
    widths: tuple[int, int] | None = None
    bias: bool = True
    activation: str = "Tanh"
    residual: bool = False

    def __str__(self) -> str:
        """The kind, and the widths of a map."""
        return f"Dense {self.widths[0]} → {self.widths[1]}" if self.kind == "Dense" and self.widths else self.kind


@dataclass(frozen=True)
class SentencePooling:
    """How a sentence-embedding model makes one vector of a text: pooled tokens, modules behind them, prompts before.

    Attributes:
        pooling: One of `POOLINGS`, or several joined by `+`.
        normalize: Whether vectors are scaled to length one at the end.
        max_length: The longest input in tokens, special ones included, or None where the folder does not say.
        modules: What is between the pooling and that scaling, in order.
        include_prompt: Whether the tokens of a prompt are pooled too.
        prompts: Text that is put before a text, by the name of its use, such as `query`.
        default_prompt: The use where none is named; None puts nothing before a text.
        similarity: How sentence-transformers compares vectors (`similarity_fn_name`); None where no file says it.
        truncate_dim: To how many components sentence-transformers cuts its vectors; None where no file says it.
    """

    pooling: str
    normalize: bool
    max_length: int | None
    modules: tuple[SentenceModule, ...] = ()
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    similarity: str | None = None
    truncate_dim: int | None = None

    def width(self, hidden: int) -> int:
        """Return the width of the vectors, given that of the hidden states."""
        known = [module.widths[1] for module in self.modules if module.widths is not None]
        return known[-1] if known else self.pooled_width(hidden)

    def pooled_width(self, hidden: int) -> int:
        """Return the width of the pooled tokens, given that of the hidden states."""
        return hidden * len(self.pooling.split("+"))

    def fits(self, hidden: int) -> bool:
        """Whether the modules behind the pooling take the vectors of a model of this hidden width."""
        first = next((module.widths[0] for module in self.modules if module.widths is not None), None)
        return first in (None, self.pooled_width(hidden))

    def check_fits(self, name: str | Path, hidden: int) -> None:
        """Refuse modules that take vectors of another width than the Transformer gives.

        Raises:
            ModelError: naming the model.
        """
        if not self.fits(hidden):
            raise ModelError(
                f"The modules of '{name}' ({self}) do not fit its Transformer of width {hidden}; copy or download the "
                "model again."
            )

    def check_whole(self, name: str | Path, hidden: int) -> None:
        """Refuse vectors that sentence-transformers cuts, where they are read: limbeck's are whole.

        Raises:
            ModelError: naming the model.
        """
        if self.truncate_dim is not None and self.truncate_dim < self.width(hidden):
            raise ModelError(
                f"'{name}' cuts its vectors by truncate_dim {self.truncate_dim}, and limbeck reads whole ones: set it "
                f"to null in {LIBRARY_CONFIG} of a copy. A student learns cut vectors too by the method's truncate."
            )

    def without_prompts(self) -> SentencePooling:
        """Return the same for a model that reads texts as they are."""
        return self.with_prompts(())

    def with_prompts(self, texts: Collection[str]) -> SentencePooling:
        """Return the same with those prompts alone whose text is among `texts`, for a model that learned no others."""
        kept = {name: text for name, text in self.prompts.items() if text in texts}
        return replace(self, prompts=kept, default_prompt=self.default_prompt if self.default_prompt in kept else None)

    def __str__(self) -> str:
        """The pooling, and the modules behind it."""
        return " + ".join([self.pooling, *map(str, self.modules)])

    @property
    def said_prompts(self) -> dict[str, str]:
        """The prompts that are not empty, the default one first."""
        names = sorted(self.prompts, key=lambda name: name != self.default_prompt)
        return {name: self.prompts[name] for name in names if self.prompts[name]}

    def prompt(self, role: str | None = None) -> str:
        """Return what is put before a text.

        Args:
            role: `query`, `document`, another name of `prompts`, or None for the default. A role without a prompt has
                none; documents may have theirs by the names `passage` and `corpus` too.
        """
        if role is None:
            return self.prompts.get(self.default_prompt or "", "")
        return next((self.prompts[name] for name in prompt_names(role) if name in self.prompts), "")


def prompt_names(role: str | None) -> tuple[str, ...]:
    """Return the names that the prompt of a role may have, the first that is there being its."""
    return () if role is None else ("document", "passage", "corpus") if role == "document" else (role,)


def sentence_pooling(name_or_path: str | Path, revision: str | None = None) -> SentencePooling | None:
    """Read how a sentence-transformers folder makes its vectors; of a Hub name its small files are fetched.

    Args:
        name_or_path: A folder, `package:NAME` or a Hub name (see `resolve_model`).
        revision: Of a Hub name: branch, tag or commit; None is `main`.

    Returns:
        None for a model without `modules.json` (an ordinary Transformer), or with a Transformer alone in it.

    Raises:
        ModelError: for a missing folder, unreadable files, or modules that limbeck cannot apply, without which its
            vectors would be others.
    """
    resolved = resolve_model(name_or_path)
    if not is_local(resolved):
        resolved = str(fetch_modules(name_or_path, revision))
    root, found = sentence_modules(resolved)
    if not found:
        return None
    places = [(kind.rpartition(".")[2], folder_inside(root, place, MODULES)) for kind, place in found]
    _check_kinds(name_or_path, [kind for kind, _ in found])
    if len(places) == 1:
        return None
    transformer, pooling = places[0][1], _read_config(places[1][1])
    _check_transformer(transformer, resolved)
    modules = [_read_module(kind, place) for kind, place in places[2:] if kind != "Dropout"]  # Training alone has it.
    _check_widths(name_or_path, modules)
    normalize = bool(modules) and modules[-1].kind == "Normalize"
    prompts, default = _read_prompts(root / LIBRARY_CONFIG)
    library = read_json(root / LIBRARY_CONFIG, {})
    cut = library.get("truncate_dim")
    similarity = library.get("similarity_fn_name")
    return SentencePooling(
        pooling=_pooling_mode(places[1][1] / "config.json", pooling),
        normalize=normalize,
        max_length=_longest_input(transformer),
        modules=tuple(modules[:-1] if normalize else modules),
        include_prompt=bool(pooling.get("include_prompt", True)),
        prompts=prompts,
        default_prompt=default,
        similarity=similarity if similarity in _SIMILARITIES else None,
        truncate_dim=cut if type(cut) is int else None,
    )


def trained_widths(config: PreTrainedConfig) -> tuple[int, ...]:
    """Return the widths to which a model's vectors were trained to be cut, if it names any; the widest first."""
    said = getattr(config, TRAINED_WIDTHS, None)
    widths = {width for width in said if type(width) is int and width > 0} if isinstance(said, list) else set()
    return tuple(sorted(widths, reverse=True))


def check_pooling_named(name_or_path: str | Path) -> None:
    """Refuse a folder whose `modules.json` names no pooling, or is not there, beside one that the mean is not.

    Args:
        name_or_path: The model; of a Hub name no pooling is fetched that nothing names.

    Raises:
        ModelError: for such a folder.
    """
    root = Path(resolve_model(name_or_path))
    place = root / "1_Pooling" / "config.json"
    mode = _pooling_mode(place, config) if (config := read_json(place, {})) else "mean"
    behind = [each.name for each in sorted(root.glob("[2-9]_*")) if not each.name.endswith("_Normalize")]
    if mode != "mean" or behind:
        lacks = f"names no pooling in {MODULES}" if (root / MODULES).is_file() else f"has no {MODULES}"
        says = f"says {mode}" if mode != "mean" else f"is followed by '{behind[0]}'"
        raise ModelError(
            f"'{name_or_path}' {lacks}, so that its vectors would be the mean of tokens, but its '1_Pooling' {says}: "
            "copy or download the model again, or ask for a pooling (method.pooling in a recipe of "
            "sentence_embedding, `evaluate --set pooling=…`)."
        )


def routes_of(name_or_path: str | Path) -> tuple[str, str] | None:
    """Return the models of a router's folder that read queries and documents; None of any other model.

    Args:
        name_or_path: A folder, as `limbeck export --format router` writes it; anything else is no router.

    Raises:
        ModelError: for a router whose models are no whole folders, or an unreadable `modules.json`.
    """
    try:
        folder = Path(name_or_path).expanduser()
        listed = read_json(folder / MODULES, []) if (folder / MODULES).is_file() else []
    except (RuntimeError, OSError, ValueError):  # No folder by this name; `resolve_model` says why.
        return None
    kinds = [str(module.get("type", "")) for module in listed if isinstance(module, dict)]
    if not any(kind.rpartition(".")[2] in ("Router", "Asym") for kind in kinds):
        return None
    routes = folder / "query", folder / "document"
    if len(kinds) > 1 or not all((route / MODULES).is_file() for route in routes):
        raise ModelError(
            f"'{name_or_path}' sends queries and documents to different models, but does not have them as whole "
            "folders 'query' and 'document'; give the model of the queries, and that of the documents as --teacher."
        )
    return str(routes[0]), str(routes[1])


def finished_pooling(said: SentencePooling | None, pooling: str | None = None) -> SentencePooling:
    """Return how a model makes its vectors: as its files say, else the mean of its tokens, scaled to length one.

    Args:
        said: What its files say.
        pooling: Another pooling in front of the same modules; None keeps that.
    """
    found = said or SentencePooling("mean", normalize=True, max_length=None)
    return found if pooling is None else replace(found, pooling=pooling)


def cross_encoder_settings(name_or_path: str | Path, config: PreTrainedConfig, revision: str | None) -> dict[str, Any]:
    """Read what sentence-transformers does with the scores of a cross-encoder.

    Its version 6 keeps it in a file beside `modules.json`, versions 4 and 5 as `sentence_transformers` in that, older
    ones as `sbert_ce_default_activation_function`.

    Args:
        name_or_path: The model.
        config: Its configuration.
        revision: A branch, tag or commit on the Hub.

    Returns:
        The `sentence_transformers` of a configuration, which all versions from 4 on read: `activation_fn`, the function
        after the scores. Empty where the model does not say, and sentence-transformers takes a sigmoid.

    Raises:
        ModelError: for a file that cannot be read.
    """
    said = getattr(config, "sentence_transformers", None)
    found = dict(said) if isinstance(said, dict) else {}
    folder = fetch(name_or_path, revision, [MODULES, LIBRARY_CONFIG])
    own = read_json(folder / LIBRARY_CONFIG, {}) if (folder / MODULES).is_file() else {}
    older = getattr(config, "sbert_ce_default_activation_function", None)
    activation = own.get("activation_fn") or found.get("activation_fn") or older
    return {**found, "activation_fn": activation} if isinstance(activation, str) else found


def check_no_prompt(name_or_path: str | Path, revision: str | None = None) -> None:
    """Refuse a cross-encoder that has a prompt before its texts by default, as version 6 of sentence-transformers may.

    Limbeck puts none before texts whose scores it reads, so these would be of other inputs.

    Raises:
        ModelError: for one, or a file that cannot be read.
    """
    folder = fetch(name_or_path, revision, [MODULES, LIBRARY_CONFIG])
    file = folder / LIBRARY_CONFIG
    if not (folder / MODULES).is_file() or read_json(file, {}).get("model_type") != "CrossEncoder":
        return
    prompts, default = _read_prompts(file)
    if prompt := prompts.get(default or ""):
        raise ModelError(
            f"'{name_or_path}' has the prompt {prompt[:40]!r} before its texts by default, but limbeck reads "
            f"scores without one; set default_prompt_name in its {LIBRARY_CONFIG} to null if its scores mean the "
            "same without one."
        )


def sentence_modules(resolved: str) -> tuple[Path, list[tuple[str, str]]]:
    """Return the root of a sentence-transformers folder, and its modules in order: type and path.

    Args:
        resolved: As `resolve_model` returns it; the root may be the folder above.

    Raises:
        ModelError: for an unreadable `modules.json`.
    """
    root = Path(resolved)
    if not (root / MODULES).is_file() and (root.parent / MODULES).is_file():
        root = root.parent
    listed = read_json(root / MODULES, [])
    modules = [module for module in listed if isinstance(module, dict)]
    return root, [(str(module.get("type", "")), str(module.get("path", ""))) for module in modules]


def _check_kinds(name: str | Path, kinds: list[str]) -> None:
    """Refuse modules of others than sentence-transformers, unknown ones, and known ones in an unknown order."""
    short = [kind.rpartition(".")[2] for kind in kinds]
    known = ("Transformer", "Pooling", "Dense", "LayerNorm", "Normalize", "Dropout")
    wrong = [
        kind
        for kind, last in zip(kinds, short, strict=True)
        if not kind.startswith("sentence_transformers.") or last not in known
    ]
    if wrong:
        reason = _NOT_APPLIED.get(wrong[0].rpartition(".")[2], "it is unknown")
        raise ModelError(
            f"'{name}' makes its vectors with {wrong[0][:200]!r}, which limbeck cannot apply: {reason}. To use its "
            "Transformer alone, take it without modules.json."
        )
    if short[:2] != ["Transformer", "Pooling"][: len(short)] or set(short[2:]) & {"Transformer", "Pooling"}:
        raise ModelError(
            f"'{name}' makes its vectors with {', '.join(short)[:200]}; limbeck applies a Transformer, a Pooling "
            "and the modules after them, in this order. To use its Transformer alone, take it without modules.json."
        )


def _check_transformer(folder: Path, resolved: str) -> None:
    """Refuse a Transformer module that reads or gives something else than its last hidden states."""
    file = folder / "sentence_bert_config.json"
    config = read_json(file, {})
    task, output = config.get("transformer_task", "feature-extraction"), config.get("module_output_name")
    if task != "feature-extraction" or output not in (None, "token_embeddings"):
        raise ModelError(
            f"'{file}' says transformer_task {str(task)[:80]!r} and module_output_name {str(output)[:80]!r}; limbeck "
            "reads the last hidden states of a feature-extraction model."
        )
    for key, said in _unread(config):
        raise ModelError(
            f"'{file}' says {key} {str(said)[:80]}; limbeck reads texts as the tokenizer alone gives them, and the "
            "last hidden states: take that out of a copy of the folder, if its vectors may be others."
        )
    if config.get("do_lower_case") and not _lowers_case(read_json(Path(resolved) / "tokenizer.json", {})):
        raise ModelError(
            f"'{file}' says do_lower_case, but the tokenizer beside it keeps capitals; load the model once with "
            "sentence-transformers 5 or later and save it again, which puts it into the tokenizer."
        )


def _unread(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield settings of sentence-transformers 6 by which other tokens are read, or another output."""
    for key in ("query_length", "document_length", "query_expansion"):
        if config.get(key):
            yield key, config[key]
    given, modalities = (_mapping(config.get(key)) for key in ("processing_kwargs", "modality_config"))
    for modality in ("text", "common"):
        said = _mapping(given.get(modality))
        if changed := {
            key: value for key, value in said.items() if (key, value) not in _USUAL and key not in _HARMLESS
        }:
            yield "processing_kwargs", changed
    text = _mapping(modalities.get("text"))
    if (text.get("method", "forward"), text.get("method_output_name") or _HIDDEN) != ("forward", _HIDDEN):
        yield "modality_config", text


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _lowers_case(tokenizer: Mapping[str, Any]) -> bool:
    normalizer = tokenizer.get("normalizer") or {}
    parts = normalizer.get("normalizers") or [normalizer]
    return any(part.get("type") == "Lowercase" or part.get("lowercase") for part in parts if isinstance(part, dict))


def _read_config(folder: Path) -> dict[str, Any]:
    """Read the configuration that a module cannot be without."""
    file = folder / "config.json"
    if not file.is_file():
        lost = file if folder.is_dir() else folder
        raise ModelError(f"'{lost}' is missing, and {MODULES} names its module; copy or download the model again.")
    return read_json(file, {})


def _read_module(kind: str, folder: Path) -> SentenceModule:
    """Read the configuration of a module behind the pooling."""
    file = folder / "config.json"
    config = read_json(file, {}) if kind == "Normalize" else _read_config(folder)
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _VECTOR):
            raise ModelError(f"'{file}' says {key} {str(config[key])[:80]!r}; limbeck applies modules to {_VECTOR}.")
    if kind == "Normalize":
        return SentenceModule("Normalize")
    if kind == "LayerNorm":
        width = _width(file, config, "dimension")
        return SentenceModule("LayerNorm", folder, (width, width))
    path, _, activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh")).rpartition(".")
    if not (path == "torch.nn" or path.startswith("torch.nn.modules.")) or activation not in _activations():
        raise ModelError(
            f"'{file}' names the activation '{path[:80]}.{activation[:80]}', which is not one of torch.nn without "
            f"arguments and weights.{suggestion(activation, _activations())}"
        )
    flags = {key: config.get(key, default) for key, default in (("bias", True), ("use_residual", False))}
    if wrong := [key for key, value in flags.items() if not isinstance(value, bool)]:
        raise ModelError(f"'{file}' says {wrong[0]} {str(flags[wrong[0]])[:80]!r}; give true or false.")
    widths = _width(file, config, "in_features"), _width(file, config, "out_features")
    return SentenceModule("Dense", folder, widths, flags["bias"], activation, flags["use_residual"])


def _activations() -> list[str]:
    """Names of the activations in `torch.nn` that need no argument and have no weights, and of none at all."""
    from torch.nn.modules import activation

    with_arguments = {"MultiheadAttention", "PReLU", "Threshold"}
    names = (name for name in activation.__all__ if name not in with_arguments)
    return ["Identity", *names]


def _width(file: Path, config: Mapping[str, Any], key: str) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_WIDTH:
        raise ModelError(f"'{file}' says {key} {str(value)[:80]}; give a whole number of 1 to {_MOST_WIDTH:,}.")
    return value


def _check_widths(name: str | Path, modules: list[SentenceModule]) -> None:
    width = None
    for module in (module for module in modules if module.widths is not None):
        assert module.widths is not None
        if width is not None and module.widths[0] != width:
            raise ModelError(
                f"The module '{module.folder}' of '{name}' takes vectors of width {module.widths[0]}, but the "
                f"module before it gives {width}; copy or download the model again."
            )
        width = module.widths[1]


def _read_prompts(file: Path) -> tuple[Mapping[str, str], str | None]:
    """Read the prompts of a model, without empty ones, and the name of the default one."""
    config = read_json(file, {})
    prompts, default = config.get("prompts") or {}, config.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str) and len(text) <= _LONGEST_PROMPT for text in prompts.values()
    ):
        raise ModelError(f"The prompts in '{file}' do not have the expected structure: give each a name and a text.")
    if default is not None and default not in prompts:
        raise ModelError(
            f"default_prompt_name in '{file}' is {str(default)[:80]!r}.{suggestion(str(default), prompts)}"
        )
    return {name: text for name, text in prompts.items() if text}, default


def _longest_input(transformer: Path) -> int | None:
    """Return the longest input by its own key, else by the tokenizer, where sentence-transformers 6 keeps it."""
    own = read_json(transformer / "sentence_bert_config.json", {})
    file, key, value = transformer / "sentence_bert_config.json", "max_seq_length", own.get("max_seq_length")
    if value is None and "modality_config" in own:
        file, key = transformer / "tokenizer_config.json", "model_max_length"
        value = read_json(file, {}).get(key)
        if isinstance(value, int | float) and value > _MOST_TOKENS:
            return None  # Tokenizers without a limit say 1e30.
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_TOKENS):
        raise ModelError(
            f"{key} in '{file}' is {str(value)[:80]}; give a whole number of 1 to {_MOST_TOKENS:,}, or null."
        )
    return value


def _pooling_mode(file: Path, config: Mapping[str, Any]) -> str:
    # New folders name the modes; older ones have one flag a mode.
    named = config.get("pooling_mode")
    listed = [named] if isinstance(named, str) else named
    flags = {f"pooling_mode_{name}": name for name in ("lasttoken", "mean_sqrt_len_tokens")}
    flags |= {f"pooling_mode_{name}_token{'' if name == 'cls' else 's'}": name for name in POOLINGS[:3]}
    flags |= {"pooling_mode_weightedmean_tokens": "weightedmean"}
    if listed is None:
        unknown = [key for key, on in config.items() if key.startswith("pooling_mode_") and on and key not in flags]
        order = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
        chosen = [name for name in order if any(config.get(key) for key, flag in flags.items() if flag == name)]
        listed = unknown or chosen
    if not isinstance(listed, list) or not listed or not all(name in POOLINGS for name in listed):
        shown = " + ".join(map(str, listed))[:200] if isinstance(listed, list) and listed else "none"
        raise ModelError(f"The pooling in '{file}' is {shown}; limbeck knows {', '.join(POOLINGS)}.")
    return "+".join(listed)


def describe_pooling(pooling: str | SentenceHead) -> str:
    """Return how sentence vectors are made, for records: the pooling, and the modules behind it."""
    return pooling if isinstance(pooling, str) else str(pooling.sentence)


def check_pooling(pooling: str) -> None:
    """Refuse a pooling that is neither one of `POOLINGS` nor several joined by `+`.

    Raises:
        ModelError: naming the nearest.
    """
    for mode in pooling.split("+"):
        if mode not in POOLINGS:
            raise ModelError(f"Unknown pooling '{mode}'.{suggestion(mode, POOLINGS)}")
