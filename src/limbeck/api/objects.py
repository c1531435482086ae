"""Objects in the place of names: models, texts and data sets become files that a recipe can name, known by content.

Every call that takes a name sends what it was given through `Objects`, once, and goes on with the names. A recipe so
stays a document, a run can be resumed from its folder, and what no document can hold is noted with its hash.
"""

import dataclasses
import hashlib
import inspect
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from limbeck.api.requests.values import as_list
from limbeck.core.files import atomic_folder, remove
from limbeck.core.folders import writing
from limbeck.core.paths import default_cache_dir
from limbeck.errors import LimbeckError, RecipeError, shorten_error

if TYPE_CHECKING:
    from transformers import PreTrainedModel, TrainingArguments

_MOST_LOOKED_AT = 1000
_ROWS_AT_ONCE = 10_000
_DEVELOPMENT = ("validation", "dev", "development")
_NAME = re.compile(r"[^\w.-]+")
TOKENIZER_MISSING = (
    "the model object has no tokenizer, and there is none at '{place}', where it was loaded from; give tokenizer=…, or "
    "(model, tokenizer) instead of the model."
)


class Objects:
    """Keeps objects in a folder, each under a name that follows from its content, and says what was kept.

    Args:
        output: The folder of a run or evaluation, where they are kept in `inputs`; None is a folder of limbeck's cache.
        before: Called before something is kept; it may refuse to write into the folder.

    Attributes:
        notes: A sentence for every object, by the key of the recipe whose value it is.
    """

    def __init__(self, output: str | Path | None = None, before: Callable[[], object] = lambda: None) -> None:
        from limbeck.core.paths import INPUTS

        self._folder = (default_cache_dir() if output is None else Path(output).expanduser()) / INPUTS
        self._before = before
        self.notes: dict[str, str] = {}

    @contextmanager
    def _keeping(self) -> Iterator[None]:
        """Keep something in the folder, which is made where it may be."""
        self._before()
        with writing(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            yield

    # Models.

    def model(self, value: Any, place: str = "model", tokenizer: Any = None) -> str:
        """Return the name of a model: of an object, the folder that it is kept in.

        Args:
            value: A name or path; or a model of transformers, alone or as (model, tokenizer), a pipeline, a
                `SentenceTransformer` or `CrossEncoder`; or a result of limbeck with a model.
            place: Key of the recipe, for messages.
            tokenizer: Of a model object: its tokenizer, or the name of a model that has it.

        Raises:
            RecipeError: for anything else, and a model object without a tokenizer.
        """
        if isinstance(value, str | Path):
            return str(value)
        if (found := _folder_of_result(value)) is not None:
            return str(found)
        model, own = _taken_apart(value)
        if _is_of(model, "transformers", "PreTrainedModel"):
            tokens = _tokenizer_of(model, own if tokenizer is None else tokenizer, place)

            def save(folder: Path) -> None:
                model.save_pretrained(folder)
                tokens.save_pretrained(folder)

        elif _is_of(model, "sentence_transformers"):

            def save(folder: Path) -> None:
                model.save_pretrained(str(folder))

        else:
            raise RecipeError(
                f"{place}: {_kind(model)} is neither the name of a model nor a transformers or "
                "sentence-transformers model; give a folder, package:NAME, a Hub name, or such an object."
            )
        return str(self._keep_model(_kind(model), save, place))

    def models(self, values: Any, place: str = "models") -> list[str]:
        """Return the names of several models, or of one alone; see `model`."""
        is_pair = isinstance(values, tuple) and len(values) == 2 and hasattr(values[1], "save_pretrained")
        return [self.model(each, place) for each in ([values] if is_pair else as_list(values))]

    def _keep_model(self, kind: str, save: Callable[[Path], None], place: str) -> Path:
        from limbeck.models.fingerprint import model_fingerprint
        from limbeck.models.quiet import quiet

        with self._keeping(), quiet():
            aside = self._folder / f"{kind}.{os.getpid()}"
            try:
                with atomic_folder(aside) as partial:
                    try:
                        save(partial)
                    except (RuntimeError, TypeError, ValueError) as error:  # The class of the model is anyone's.
                        raise RecipeError(f"{place}: the {kind} cannot be saved ({shorten_error(error)}).") from error
                found = model_fingerprint(str(aside))
                kept = self._folder / f"{kind}-{found[:12]}"
                if not kept.is_dir():
                    aside.rename(kept)
            finally:
                remove(aside)
        self._note(place, f"a {kind}, given as an object", kept, found)
        return kept

    def student(self, value: Any, place: str = "student", tokenizer: Any = None) -> Any:
        """Return a recipe's student: a model, or the path of one, is a start of its own shape."""
        if isinstance(value, Mapping):
            start = value.get("initialise")
            if isinstance(start, Mapping) and not isinstance(start.get("checkpoint"), str | Path | None):
                name = self.model(start["checkpoint"], f"{place}.initialise.checkpoint", tokenizer)
                return {**value, "initialise": {**start, "checkpoint": name}}
            return value
        if isinstance(value, str | int) or value is None:
            return value
        from limbeck.models.families import shape_of
        from limbeck.models.loading import load_config

        name = self.model(value, place, tokenizer)
        shape = shape_of(load_config(name))
        sizes = {key: getattr(shape, key) for key in ("layers", "hidden", "heads", "ffn")}
        if shape.embedding != shape.hidden:
            sizes["embedding"] = shape.embedding
        return {"shape": sizes, "initialise": {"checkpoint": name}}

    # Texts and rows.

    def corpus(self, value: Any, place: str = "corpus") -> dict[str, Any]:
        """Return a recipe's corpus: sources, and the development rows of a data set of several splits.

        Args:
            value: A source or several; texts, rows as mappings, a data set, a table of pandas, or an iterable of texts
                or rows; or a corpus as recipes have it, with any of these in it.
            place: Key of the recipe, for messages.

        Raises:
            RecipeError: for anything else, texts that are none, and rows that cannot be written.
        """
        if _is_splits(value):
            splits = {str(name): split for name, split in value.items()}
            if "train" not in splits:
                raise RecipeError(
                    f"{place}: the data set has the splits {', '.join(splits)}, but no 'train'; give one of its splits."
                )
            held = next((splits[name] for name in _DEVELOPMENT if name in splits), None)
            found = {"sources": self.sources(splits["train"], f"{place}.sources")}
            return found if held is None else found | {"development": self.sources(held, f"{place}.development")}
        if isinstance(value, Mapping):
            said = dict(value)
            if "sources" in said:
                inside = self.corpus(said["sources"], place) if _is_splits(said["sources"]) else {}
                said |= inside or {"sources": self.sources(said["sources"], f"{place}.sources")}
            if "development" in value:
                said["development"] = self.sources(value["development"], f"{place}.development")
            return said
        return {"sources": self.sources(value, f"{place}.sources")}

    def sources(self, value: Any, place: str = "corpus.sources") -> list[Any]:
        """Return the sources that a value names, or that its texts or rows are kept in; see `corpus`."""
        if isinstance(value, str | Path):
            return [str(value)]
        if isinstance(value, Mapping):
            own = self.sources(value["source"], place) if "source" in value else []
            if len(own) != 1:
                raise RecipeError(f"{place}: a mapping here describes one source: give {{source: …, role: …}}.")
            return [{**value, "source": own[0]}]
        if hasattr(value, "column_names") and hasattr(value, "with_format") and hasattr(value, "num_rows"):
            columns = list(value.column_names)
            if len(columns) == 1 and columns[0] != "text":
                return [self._keep_lines(value[columns[0]], place)]
            return [self._keep_table(value.with_format("arrow").iter(_ROWS_AT_ONCE), place)]
        if _is_of(value, "pandas") and hasattr(value, "columns"):
            from pyarrow import Table

            return [self._keep_table(iter([Table.from_pandas(value, preserve_index=False)]), place)]
        if isinstance(value, Sequence) and not _are_contents(value):
            return [one for each in value for one in self.sources(each, place)]
        if isinstance(value, Iterable) and not isinstance(value, bytes):
            return [self._keep_lines(value, place)]
        raise RecipeError(f"{place}: {_kind(value)} is not text; give files, folders, a list of texts or a data set.")

    def _keep_lines(self, values: Iterable[Any], place: str) -> str:
        """Keep texts or rows as a file of JSON, a line each."""
        iterator = iter(values)
        first = next(iterator, None)
        if first is None:
            raise RecipeError(f"{place} is empty: give a file, folder, texts or a data set.")
        kind = "rows" if isinstance(first, Mapping) else "texts"
        count = 0

        def lines() -> Iterator[bytes]:
            nonlocal count
            for count, value in enumerate(chain([first], iterator), start=1):
                row = value if kind == "rows" else {"text": value}
                if not isinstance(value, Mapping if kind == "rows" else str):
                    wanted = "mappings of columns" if kind == "rows" else "text"
                    said = "None" if value is None else f"of the type {_kind(value)}"
                    raise RecipeError(f"{place}: item {count} is {said} among {wanted}; give values of one kind.")
                try:
                    yield json.dumps(row, ensure_ascii=False, default=_plain_value).encode("utf-8", "replace") + b"\n"
                except (TypeError, ValueError) as error:
                    raise RecipeError(f"{place}: row {count} cannot be written ({shorten_error(error)}).") from error

        return self._keep_file(lines(), kind, ".jsonl", place, lambda: f"{count:,} {kind}, given as objects")

    def _keep_table(self, tables: Iterator[Any], place: str) -> str:
        """Keep tables of Arrow, one behind the other, as a file of Parquet."""
        from io import BytesIO

        import pyarrow.parquet

        count = 0

        def pieces() -> Iterator[bytes]:
            nonlocal count
            buffer, writer = BytesIO(), None
            for table in tables:
                plain = table.replace_schema_metadata(None)
                writer = writer or pyarrow.parquet.ParquetWriter(buffer, plain.schema)
                writer.write_table(plain.cast(writer.schema))
                count += plain.num_rows
                yield buffer.getvalue()
                buffer.seek(0)
                buffer.truncate()
            if writer is None or not count:
                raise RecipeError(f"{place} has no rows: give a data set that has some.")
            writer.close()
            yield buffer.getvalue()

        return self._keep_file(pieces(), "rows", ".parquet", place, lambda: f"{count:,} rows, given as an object")

    def _keep_file(self, pieces: Iterable[bytes], kind: str, suffix: str, place: str, said: Callable[[], str]) -> str:
        digest = hashlib.blake2b(digest_size=12)
        with self._keeping():
            aside = self._folder / f"{kind}.{os.getpid()}.partial"
            try:
                with aside.open("wb") as file:
                    for piece in pieces:
                        digest.update(piece)
                        file.write(piece)
                kept = self._folder / f"{kind}-{digest.hexdigest()[:12]}{suffix}"
                aside.replace(kept)
            finally:
                aside.unlink(missing_ok=True)
        self._note(place, said(), kept, digest.hexdigest())
        return str(kept)

    def _note(self, place: str, what: str, kept: Path, found: str) -> None:
        self.notes[place] = f"{what}, kept as '{kept}' (hash of its content: {found})"

    # Whole documents.

    def document(self, data: Mapping[str, Any], place: str = "") -> dict[str, Any]:
        """Return a recipe, a stage or a plan with names in the places of its objects."""
        found = dict(data)
        for key, value in data.items():
            at = f"{place}{key}"
            if key == "teacher":
                found[key] = self._teacher(value, at)
            elif key == "student":
                found[key] = self.student(value, at)
            elif key == "students" and isinstance(value, list | tuple):
                found[key] = [self.student(one, f"{at}.{number}") for number, one in enumerate(value)]
            elif key == "corpus" and value is not None:
                found[key] = self.corpus(value, at)
            elif key == "stages" and isinstance(value, list | tuple):
                found[key] = [
                    self.document(one, f"{at}.{number}.") if isinstance(one, Mapping) else one
                    for number, one in enumerate(value)
                ]
        return found

    def _teacher(self, value: Any, place: str, tokenizer: Any = None) -> Any:
        """Return a recipe's teacher; an object has the name of its folder in cards, not that of its path."""
        if isinstance(value, str | Path | None):
            return None if value is None else str(value)
        said = dict(value) if isinstance(value, Mapping) else {"model": value}
        if isinstance(said.get("model"), str | Path | None):
            return said
        name = self.model(said["model"], f"{place}.model", tokenizer)
        return {"name": Path(name).name, **said, "model": name}

    def teacher(self, value: Any, tokenizer: Any = None) -> dict[str, Any]:
        """Return a recipe's teacher as a mapping; see `model`."""
        found = self._teacher(value, "teacher", tokenizer)
        return {"model": found} if isinstance(found, str) else dict(found)


def _folder_of_result(value: Any) -> Path | None:
    """Return the folder of the model that a result of limbeck has."""
    if not _is_of(value, "limbeck"):
        return None
    found = next((getattr(value, name, None) for name in ("student", "model") if hasattr(value, name)), None)
    return found if isinstance(found, Path) else None


def _taken_apart(value: Any) -> tuple[Any, Any]:
    """Return a model and its tokenizer, where an object has both."""
    if isinstance(value, tuple | list) and len(value) == 2:
        return value[0], value[1]
    if _is_of(value, "transformers") and hasattr(value, "model") and hasattr(value, "tokenizer"):
        return value.model, value.tokenizer  # A pipeline.
    return value, None


def _tokenizer_of(model: "PreTrainedModel", given: Any, place: str) -> Any:
    if hasattr(given, "save_pretrained"):
        return given
    from limbeck.models.tokenizers import load_tokenizer

    origin = given if isinstance(given, str | Path) else model.name_or_path
    try:
        return load_tokenizer(str(origin))
    except LimbeckError as error:
        raise RecipeError(f"{place}: {TOKENIZER_MISSING.format(place=origin)}") from error


def _is_of(value: Any, package: str, name: str = "") -> bool:
    """Whether an object is of a class of a package, of a name if one is given; nothing is imported to tell."""
    kinds = value.__mro__ if isinstance(value, type) else type(value).__mro__
    return any(kind.__module__.split(".")[0] == package and name in ("", kind.__name__) for kind in kinds)


def _kind(value: Any) -> str:
    return _NAME.sub("-", type(value).__name__)


def _is_splits(value: Any) -> bool:
    """Whether a value is a data set of several splits, by their names."""
    return isinstance(value, Mapping) and _is_of(value, "datasets")


def _are_contents(values: Sequence[Any]) -> bool:
    """Whether the members of a list are texts or rows, and not the names of sources: most tell by blanks in them."""
    some = values[:_MOST_LOOKED_AT]
    if some and all(isinstance(value, Mapping) and "source" not in value for value in some):
        return True
    texts = [value for value in some if isinstance(value, str)]
    if len(texts) < len(some):
        return bool(texts) and not any(isinstance(value, Path | Mapping) for value in some) and _are_contents(texts)
    return 2 * sum(map(_is_text, texts)) > len(texts)


def _is_text(value: str) -> bool:
    from limbeck.corpus.addresses import is_remote
    from limbeck.corpus.readers import names_file

    words = value.split(maxsplit=1)
    if len(words) < 2 or is_remote(words[0]) or names_file(value):
        return False
    try:
        return not Path(value).exists()
    except (OSError, ValueError):  # Longer than a name may be, or with a NUL.
        return True


def _plain_value(value: Any) -> Any:
    """Return a number or list of another library as Python has it, for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{_kind(value)} among its values")


# What a call is given beside models and texts, as a recipe has it.


_OF_THE_OBJECT = ("output_dir", "logging_dir", "run_name", "disable_tqdm")
"""Training arguments that every object has of its own, and that limbeck decides."""


def training_of(given: "Mapping[str, Any] | TrainingArguments | None") -> dict[str, Any]:
    """Return training arguments as a recipe has them; of an object what differs from its defaults.

    Raises:
        RecipeError: for anything else.
    """
    if given is None:
        return {}
    if isinstance(given, Mapping):
        return dict(given)
    if not _is_of(given, "transformers", "TrainingArguments"):
        raise RecipeError(
            f"training: {_kind(given)} cannot hold training arguments; give a dict or transformers.TrainingArguments."
        )
    from transformers import TrainingArguments

    usual = TrainingArguments(output_dir=given.output_dir)
    found = {}
    for field in dataclasses.fields(TrainingArguments):
        value = getattr(given, field.name)
        if field.init and field.name not in _OF_THE_OBJECT and value != getattr(usual, field.name):
            found[field.name] = getattr(value, "value", value)
    return found


def method_of(given: Any) -> Any:
    """Return a method as a recipe names it: a function under `register_as_method`, or a `Method`, by its name.

    Raises:
        RecipeError: for one that is not registered.
    """
    if given is None or isinstance(given, str | Mapping):
        return given
    if isinstance(given, Sequence):
        return [method_of(one) for one in given]
    from limbeck.methods.registry import METHODS

    name = next((name for name, method in METHODS.items() if given in (method, method.compose)), None)
    if name is None:
        said = getattr(given, "__name__", _kind(given))
        raise RecipeError(f"method: '{said}' is not a registered method; put @register_as_method above its function.")
    return name


def callbacks_of(given: Any) -> list[Any]:
    """Return callbacks, each an object or a class.

    Raises:
        RecipeError: for what is no `transformers.TrainerCallback`.
    """
    found = as_list(given)
    for each in found:
        if not _is_of(each, "transformers", "TrainerCallback"):
            said = each.__name__ if isinstance(each, type) else _kind(each)
            raise RecipeError(f"callbacks: {said} is not a callback; derive it from transformers.TrainerCallback.")
    return found


def note_of_callbacks(callbacks: Sequence[Any]) -> dict[str, str]:
    """Say which callbacks a run has, with the hash of their source: no recipe can hold them."""
    if not callbacks:
        return {}
    kinds = [each if isinstance(each, type) else type(each) for each in callbacks]
    said = ", ".join(f"{kind.__name__} (hash of its source {_source_hash(kind)})" for kind in kinds)
    return {"callbacks": f"{said}; they act during training and are not part of this recipe"}


def _source_hash(kind: type) -> str:
    try:
        try:
            source = inspect.getsource(kind)
        except (OSError, TypeError):  # Of a class in a notebook only the functions have one.
            source = "".join(inspect.getsource(one) for one in vars(kind).values() if inspect.isfunction(one))
    except (OSError, TypeError):
        return "not known"
    return hashlib.blake2b(source.encode("utf-8", "replace"), digest_size=12).hexdigest()
