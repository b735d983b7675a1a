"""Reads ``config/flags.toml`` of a home."""

from pathlib import Path
from typing import Final

from torpor.flags.declared import Flag, FlagProblem, FlagsUnreadable, parse_flags
from torpor.ordinary_files import read_ordinary

FLAGS_FILE: Final = "config/flags.toml"
FLAGS_BYTES_MAX: Final = 1_048_576
"""A larger file is not read."""


def read_flags(home: Path) -> dict[str, Flag]:
    """What the home declares, sorted by key; nothing where it has no such file.

    Raises: FlagsUnreadable: with everything that is wrong, an unreadable file included.
    """
    return flags_there(home) or {}


def flags_there(home: Path) -> dict[str, Flag] | None:
    """The same; None where there is no file, or one with nothing in it, as a full disk or an editor that is not done
    leaves it; a running engine takes either for an accident.

    Raises: FlagsUnreadable: likewise; also for a link that leads to no file.
    """
    try:
        text = read_ordinary(home / FLAGS_FILE, cap_bytes=FLAGS_BYTES_MAX).decode("utf-8")
    except FileNotFoundError:
        return None
    except OSError as exc:
        problem = FlagProblem(line=0, key="", message=f"cannot be read: {exc.strerror or type(exc).__name__}")
        raise FlagsUnreadable((problem,)) from exc
    except UnicodeDecodeError as exc:
        raise FlagsUnreadable((FlagProblem(line=0, key="", message="is not UTF-8"),)) from exc
    return parse_flags(text) if text.strip() else None
