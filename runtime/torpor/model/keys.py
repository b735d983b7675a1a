"""The key of a model host: from a file or a variable, never logged, never in an error's text."""

from collections.abc import Mapping
from pathlib import Path

from torpor.errors import ConfigError
from torpor.misfits import Words
from torpor.model.anthropic_options import AnthropicOptions


def read_key(options: AnthropicOptions, *, environ: Mapping[str, str], where: str) -> str:
    """The key that the options name; empty when its variable is not set.

    Args: where: the agent's file, for errors.
    Raises: ConfigError: the file cannot be read, or what is there cannot be a key.
    """
    if options.key_file:
        try:
            key = Path(options.key_file).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as exc:
            raise ConfigError(where, key="model.key_file", found=options.key_file, expected="a readable file") from exc
        source = f"in the file {options.key_file}"
    else:
        key, source = environ.get(options.key_env, "").strip(), f"in the variable {options.key_env}"
        if not key:
            return ""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ConfigError(where, key="model key", found=Words("nothing usable"), expected=f"an API key {source}")
    return key
