"""Reads ``config/flags.toml`` of a home."""

from pathlib import Path
from typing import Final

from torpor.flags.declared import Flag, FlagProblem, FlagsUnreadable, parse_flags

FLAGS_FILE: Final = "config/flags.toml"


def read_flags(home: Path) -> dict[str, Flag]:
    """What the home declares, sorted by key; nothing where it has no such file.

    Raises: FlagsUnreadable: with everything that is wrong, an unreadable file included.
    """
    try:
        text = (home / FLAGS_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except OSError as exc:
        problem = FlagProblem(line=0, key="", message=f"cannot be read: {exc.strerror or type(exc).__name__}")
        raise FlagsUnreadable((problem,)) from exc
    except UnicodeDecodeError as exc:
        raise FlagsUnreadable((FlagProblem(line=0, key="", message="is not UTF-8"),)) from exc
    return parse_flags(text)
