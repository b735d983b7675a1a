"""Every finding has its severities, and no one is graver to an operator than to an author."""

import re
from pathlib import Path

from torpor.skillbook.codes import CODES, QUIET_AT_LOADING

ROOM = Path(__file__).parents[3] / "runtime" / "torpor" / "skillbook"


def test_every_code_that_is_found_is_in_the_table_and_the_other_way_round() -> None:
    text = "".join(path.read_text() for path in ROOM.glob("*.py") if path.name != "codes.py")
    used = set(re.findall(r"(?:Finding\(|\.find\(|code=|code = )\s*\"(\w+)\"", text))
    assert used == set(CODES)


def test_checking_is_never_milder_than_loading() -> None:
    assert [name for name, code in CODES.items() if code.loading == "error" != code.checking] == []


def test_only_warnings_are_kept_from_the_operator() -> None:
    assert {CODES[name].loading for name in QUIET_AT_LOADING} == {"warning"}
