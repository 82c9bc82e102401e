"""Stand-ins for packages that mosaicml-streaming imports and token files do not need."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types


def stub_torchvision() -> None:
    """Let `import streaming` pass where torchvision is absent: it names two of its classes."""
    if "torchvision" in sys.modules or importlib.util.find_spec("torchvision") is not None:
        return
    names = (
        "torchvision",
        "torchvision.datasets",
        "torchvision.transforms",
        "torchvision.transforms.functional",
    )
    for name in names:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        sys.modules[name] = module
    vars(sys.modules["torchvision.datasets"])["VisionDataset"] = type("VisionDataset", (), {})
    vars(sys.modules["torchvision.transforms.functional"])["to_tensor"] = None
