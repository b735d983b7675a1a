"""Reads the policy files of a home."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from torpor.ordinary_files import TooLarge, read_ordinary, shown
from torpor.policies.parse import PolicyFile, PolicyProblem, PolicyUnreadable, parse_policy

POLICIES_FOLDER: Final = "config/policies"


def read_policies(
    home: Path, *, last_good: Mapping[str, PolicyFile], file_max_bytes: int
) -> tuple[dict[str, PolicyFile], tuple[PolicyProblem, ...]]:
    """The policies of ``home`` by file name, in order, and what is wrong.

    A file that cannot be used counts as it did in ``last_good``. Of two files with one id, the first keeps it, and the
    other one is wrong.
    """
    good: dict[str, PolicyFile] = {}
    problems: list[PolicyProblem] = []
    owners: dict[str, str] = {}
    for path in sorted((home / POLICIES_FOLDER).glob("*.md")):
        try:
            policy = parse_policy(_text(path, file_max_bytes))
            if policy.id in owners:
                raise PolicyUnreadable(f"has the id {policy.id!r}, which {owners[policy.id]} has already", line=1)
        except FileNotFoundError:
            continue  # it went away in the meantime
        except PolicyUnreadable as exc:
            problems.append(PolicyProblem(file=shown(path.name), line=exc.line, message=exc.message))
            kept = last_good.get(path.name)
            if kept is None or kept.id in owners:
                continue
            policy = kept
        owners[policy.id] = path.name
        good[path.name] = policy
    return good, tuple(problems)


def _text(path: Path, max_bytes: int) -> str:
    try:
        data = read_ordinary(path, cap_bytes=max_bytes)
    except FileNotFoundError:
        raise
    except TooLarge as exc:
        message = f"is larger than {max_bytes} bytes, the most that policies.file_max_bytes allows"
        raise PolicyUnreadable(message) from exc
    except OSError as exc:
        raise PolicyUnreadable(f"cannot be read: {exc.strerror or type(exc).__name__}") from exc
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise PolicyUnreadable("is not UTF-8") from exc
