"""`tdstream.prepare`: the command as a function, also for text in memory."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from tdstream.core.errors import ConfigError
from tdstream.preparation.options import GROUPS, PrepareOptions
from tdstream.preparation.result import PrepareResult
from tdstream.text.options import named

_POSITIONAL = {"dataset", "given", "tokenizer", "given_tokenizer", "output_path"}
_OF_TORCHRUN = {"merge_wait"}
_FLAGS = {option.name for group in GROUPS for option in fields(group) if "help" in option.metadata}
_ALLOWED = _FLAGS - _POSITIONAL - _OF_TORCHRUN


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

    Every record is in the corpus exactly once, no matter how often the program is killed and started again
    with ``resume=True``. The corpus is prepared by this one process: under torchrun, call it on one rank, or
    pass ``task`` and ``num_tasks`` and merge.

    Args:
        source: A path or a name on the hub, as for ``--dataset``; a list of texts, or of dicts with a text in
            ``text_field``; a `datasets.Dataset` or `IterableDataset`, or a dict of them by ``split``; a
            function that returns a new iterator over texts or dicts at each call; or any other iterable that
            yields the same records each time. It may be read in a thread.
        tokenizer: A name, a path, or a Hugging Face tokenizer, which is copied.
        output_path: Directory for the corpus.
        name: Name of a source that is no path or name; by default that of the function or class. ``resume``
            requires the same name. A list is recognized by its content, a Dataset by its fingerprint, an
            IterableDataset by its files, anything else by this name, its length and its first 16 records:
            give different names to sources that differ only later. Without a name, a function's attribute
            ``text_version`` does the same.
        progress: Whether to show a progress bar on stderr.
        **options: The flags of ``tdstream prepare``, with the same names and defaults: data_name, split,
            data_files, text_field, strip, prepend_bos, lines, tokens_per_chunk, batch_size, max_samples,
            overwrite, append, skip_bad, resume, num_proc, encoder, task, num_tasks, val_fraction,
            val_documents; and doc_index=False for ``--no_doc_index``.

    Returns:
        The result over all runs: ``output_path`` for `tdstream.build`, ``counts`` (documents, tokens, ...),
        ``meta`` (None for one of several tasks), and ``was_complete`` if there was nothing to do.

    Raises:
        ConfigError: If an option is unknown, out of range, or does not apply to the source.
        SourceError: If the text cannot be found or read, or a record has no text.
        TokenizerError: If the tokenizer cannot be found, or has no end-of-text token.
        OutputError: If output_path is in use, holds something else, or is on a full disk.
    """
    if source is None or tokenizer is None:
        raise ConfigError("prepare needs a source and a tokenizer, got None.")
    unknown = sorted(options.keys() - _ALLOWED)
    if unknown:
        raise ConfigError(
            f"prepare has no option {', '.join(unknown)}; its options are: {', '.join(sorted(_ALLOWED))}."
        )
    files = options.get("data_files", ())
    options["data_files"] = (files,) if isinstance(files, str) else tuple(map(str, files))
    if not os.fspath(output_path):  # which Path would take for the working directory
        raise ConfigError("output_path must name a directory, got ''.")
    asked = PrepareOptions.of(**named(source, tokenizer, name), output_path=Path(output_path), **options)
    asked.check_output()
    # Imported after the checks: datasets and transformers take seconds to load.
    from tdstream.preparation.engine import prepare_corpus  # noqa: PLC0415
    from tdstream.preparation.result import Bar  # noqa: PLC0415

    with Bar(visible=progress) as bar:
        return prepare_corpus(asked, bar)
