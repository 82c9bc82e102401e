"""Labels and fields for a causal model of transformers, which shifts labels itself."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers.loss.loss_utils import ForCausalLMLoss
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from tdstream.core.errors import ConfigError

IGNORED = -100
_EXTRA = ("cu_seqlens", "max_seqlen", "document_ids", "source_id", "is_natural_stop")
"""Fields of batches that models do not take, unless their forward() names them."""


class CausalFields:
    """Makes of a batch what a model takes.

    A model of transformers expects labels that are its inputs, and shifts them: it never sees the last target
    of a row. `shift_labels`, where the model takes it, are the targets as they are, so all T of them count.

        stored row    7 8 9 5      input_ids     7 8 9       (T = 3)
                                   shift_labels  8 9 5
                                   labels     -100 8 9       shifted by the model: 8 9

    Args:
        model: The model, without wrappers.
        counts_shift_labels: Whether the Trainer counts targets in shift_labels.
        drop_unused: Whether to leave out the fields that the model does not name.
    """

    def __init__(self, model: nn.Module, *, counts_shift_labels: bool, drop_unused: bool) -> None:
        # A wrapper that takes anything, as PEFT's, hides the names of the model in it.
        unwrap: Any = getattr(model, "get_base_model", None)
        inner = unwrap() if callable(unwrap) else model
        parameters = inspect.signature(inner.forward).parameters
        takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        uses_loss = getattr(inner, "loss_function", None) is ForCausalLMLoss
        self.shifts = uses_loss or type(inner).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()
        self._takes_targets = (
            uses_loss
            and counts_shift_labels
            and (takes_any or "shift_labels" in parameters)
            and "shift_labels" in inspect.signature(ForCausalLMLoss).parameters
        )
        self._dropped = {name for name in _EXTRA if drop_unused and name not in parameters}

    def check_labels(self, labels: str) -> None:
        """Refuse a loader's labels="same" for a model that shifts: the last token of a row would be lost."""
        if self.shifts and labels == "same":
            raise ConfigError(
                'the loader was made with labels="same", which leaves the last token of each sample '
                'untrained, since the model shifts labels. Leave labels at "next", the '
                "default: the adapter passes them in the way the model expects."
            )

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """Return the model's arguments."""
        fields = {name: value for name, value in batch.items() if name not in self._dropped}
        if not self.shifts:
            return fields
        targets: Tensor = batch["labels"]
        fields["labels"] = targets.roll(1, dims=-1)
        fields["labels"][..., 0] = IGNORED
        if self._takes_targets:
            fields["shift_labels"] = targets
        return fields
