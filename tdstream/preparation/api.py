"""Turn text that a program has in hand, or can name, into a corpus."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tdstream.core.checks import check_int
from tdstream.core.errors import ConfigError
from tdstream.preparation.options import check_place
from tdstream.preparation.result import PrepareResult
from tdstream.text.options import PrepareOptions, name_of

_NOT_HERE = {"dataset", "tokenizer", "output_path", "merge_wait"}
_COUNTS = ("tokens_per_chunk", "batch_size", "max_samples", "num_proc", "num_tasks", "val_documents")


def prepare(
    source: Any,
    tokenizer: Any,
    output_path: str | os.PathLike[str],
    *,
    name: str | None = None,
    progress: bool = False,
    **options: Any,
) -> PrepareResult:
    """Tokenize text and write it as a corpus, exactly as ``tdstream prepare`` does.

    Every record is in the corpus exactly once, however often the program is killed and started again with
    ``resume=True``. The process does all of it: under torchrun call it on one rank, or pass ``task`` and
    ``num_tasks`` and merge.

    Args:
        source: A path or a name on the hub, as --dataset takes it. Or a list of texts, or of dicts that hold
            one in ``text_field``; a `datasets.Dataset` or `IterableDataset` (or a dict of them, of which
            ``split`` is taken); a function that returns a new iterator over texts or dicts at each call; or
            anything else that gives the same ones whenever it is iterated over. It may be read in a thread.
        tokenizer: A name, a path, or a Hugging Face tokenizer, which is copied.
        output_path: Directory for the corpus.
        name: What to call a source that is no path or name; default the function's or class's own name. With
            ``resume`` it has to be the same. A list is recognised by its content, a Dataset by its
            fingerprint, anything else by this name, its length and its first 16 records: give another name
            to what differs behind those.
        progress: Whether to show a progress bar on stderr.
        **options: The flags of ``tdstream prepare``, named and defaulting as there: data_name, split,
            data_files, text_field, lines, tokens_per_chunk, batch_size, max_samples, overwrite, append,
            skip_bad, resume, num_proc, encoder, task, num_tasks, val_fraction, val_documents; and
            doc_index=False for --no_doc_index.

    Returns:
        What was done, over all runs that it took: ``output_path`` for `tdstream.build`, ``counts``
        (documents, tokens, ...), ``meta`` (None for a task of several), ``was_complete`` if there was nothing
        to do.

    Raises:
        ConfigError: If an option is unknown, out of range, or does not go with the source.
        SourceError: If the text cannot be found or read, or a record holds none.
        TokenizerError: If the tokenizer cannot be found, or has no end-of-text token.
        OutputError: If output_path is in use, holds something else, or has no room left.
    """
    if source is None or tokenizer is None:
        raise ConfigError("prepare needs a source and a tokenizer, got None.")
    named = isinstance(source, (str, os.PathLike))
    if named and name is not None:
        raise ConfigError("name is for a source that is no path or name. Leave it out.")
    known = isinstance(tokenizer, (str, os.PathLike))
    asked = _options(
        options,
        dataset=os.fspath(source) if named else name or name_of(source),
        tokenizer=os.fspath(tokenizer) if known else name_of(tokenizer),
        output_path=Path(output_path),
    )
    check_place(asked)
    # Loads datasets and transformers, which takes seconds; what is refused above does not wait for it.
    from tdstream.preparation.engine import Inputs, prepare_corpus  # noqa: PLC0415
    from tdstream.preparation.result import Bar  # noqa: PLC0415

    inputs = Inputs(source=None if named else source, tokenizer=None if known else tokenizer)
    with Bar(visible=progress) as bar:
        return prepare_corpus(asked, bar, inputs)


def _options(given: dict[str, Any], **named: Any) -> PrepareOptions:
    allowed = PrepareOptions.__dataclass_fields__.keys() - _NOT_HERE
    unknown = sorted(given.keys() - allowed)
    if unknown:
        raise ConfigError(
            f"prepare has no option {', '.join(unknown)}; its options are: {', '.join(sorted(allowed))}."
        )
    files = given.get("data_files", ())
    data_files = (files,) if isinstance(files, str) else tuple(map(str, files))
    counts = {
        name: check_int(name, given[name], at_least=1) for name in _COUNTS if given.get(name) is not None
    }
    return PrepareOptions(**{**given, **named, **counts, "data_files": data_files})
