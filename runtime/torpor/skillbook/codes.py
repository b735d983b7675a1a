"""What can be said of a skill's file, and how grave it is: when it is loaded for a conversation, and when its author
has it checked. PURE.

Loading forgives what it can read past; checking holds a file to the specification. An ``error`` at loading means that
the skill is not there (or stays as it last was).
"""

from typing import Final, Literal, NamedTuple, TypeAlias

Severity: TypeAlias = Literal["error", "warning"]


class Code(NamedTuple):
    """Severities of one kind of finding."""

    loading: Severity
    checking: Severity
    meaning: str


CODES: Final[dict[str, Code]] = {
    "too_large": Code("error", "error", "the file is larger than `skills.file_cap_bytes`"),
    "unreadable": Code("error", "error", "the file cannot be opened or read, or is no ordinary file"),
    "link": Code("error", "error", "the file or its folder is a symbolic link, and none are followed"),
    "no_front_matter": Code("error", "error", "the file does not begin with a line `---`"),
    "unclosed": Code("error", "error", "the front matter has no closing `---`"),
    "invalid": Code("error", "error", "the front matter cannot be read as YAML, nor line by line"),
    "restriction_lost": Code(
        "error", "error", "YAML that cannot be read, and in it `allowed-tools`, `disable-model-invocation` or the like"
    ),
    "description_missing": Code("error", "error", "`description` is missing or says nothing"),
    "placeholder": Code(
        "error", "error", "`description` is what `torpor skills new` writes until somebody says better"
    ),
    "over_capacity": Code("error", "error", "`skills.bodies_cap_bytes` is used up by the skills before it"),
    "scan_bounds": Code("error", "error", "there are more folders, or deeper ones, than are looked into"),
    "misplaced": Code("error", "error", "a SKILL.md lies beside the skill folders instead of in one"),
    "not_utf8": Code("warning", "error", "bytes that are no UTF-8, replaced"),
    "utf16": Code("warning", "error", "the file is UTF-16"),
    "control_characters": Code("warning", "error", "NUL or other control characters, removed"),
    "blank_lines_first": Code("warning", "error", "blank lines before the opening `---`"),
    "closed_by_dots": Code("warning", "error", "the front matter is closed by `...`"),
    "tabs": Code("warning", "error", "tabs as indentation, read as spaces"),
    "quoted": Code("warning", "error", "a value that YAML cannot read, taken as text"),
    "line_scan": Code("warning", "error", "YAML that cannot be read: name and description alone were taken"),
    "duplicate_key": Code("warning", "error", "a key twice, the last one counts"),
    "name_missing": Code("warning", "error", "no `name`, the folder's is taken"),
    "name_not_folder": Code("warning", "error", "`name` differs from the folder's name"),
    "name_characters": Code("warning", "error", "`name` has other characters than `a-z`, `0-9` and single `-` inside"),
    "name_long": Code("warning", "error", "`name` has more than 64 characters"),
    "description_long": Code("warning", "error", "`description` has more than 1,024 characters, the index has fewer"),
    "not_text": Code("warning", "error", "a list or map where text belongs"),
    "not_true_or_false": Code("warning", "error", "neither `true` nor `false`, what allows less is taken"),
    "compatibility_length": Code("warning", "error", "`compatibility` is empty or has more than 500 characters"),
    "metadata_not_text": Code("warning", "error", "`metadata` is no map of texts, its values are kept as JSON"),
    "tools_not_text": Code("warning", "error", "`allowed-tools` is a list, the specification wants one text"),
    "front_matter_large": Code("warning", "warning", "other keys take more than 8 KiB, they are not kept"),
    "resource_link": Code("warning", "warning", "a file of the skill is a symbolic link, and none are followed"),
    "root_unreadable": Code("error", "error", "a folder of skills cannot be looked into, what it held stays"),
    "file_name": Code("warning", "error", "the file is not named SKILL.md in capitals"),
    "case_twin": Code("warning", "error", "two files whose names differ in capitals only, SKILL.md is taken"),
    "misspelt_key": Code(
        "warning", "error", "a key that is one of the specification's but for its spelling: it says nothing"
    ),
    "unknown_key": Code("warning", "warning", "a key that the specification does not have, kept"),
    "invisible_characters": Code("warning", "warning", "invisible characters in name or description, left out"),
    "body_long": Code("warning", "warning", "the text has more than 500 lines or 5,000 tokens"),
    "template_text": Code("warning", "warning", "the text still says what `torpor skills new` wrote into it"),
    "collision": Code("warning", "warning", "two skills answer to one name"),
    "byte_order_mark": Code("warning", "warning", "the file begins with a byte-order mark, ignored"),
}
"""By code, gravest first."""

QUIET_AT_LOADING: Final = frozenset({"byte_order_mark", "unknown_key", "body_long", "template_text"})
"""Of interest to an author only."""
