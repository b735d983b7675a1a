"""A SKILL.md as a skill and what there is to say of it. PURE.

Above: the catalogue, which loads what can be loaded, and ``torpor skills check``, which holds a file to the
specification. Both are one reading; they differ in how grave a finding is, which stands in ``codes``.
"""

import difflib
import hashlib
import itertools
from typing import Any, Final

import msgspec
import regex

from torpor.conversation.budget import tokens_of_bytes
from torpor.conversation.graphemes import cut
from torpor.conversation.text import clean
from torpor.skillbook.codes import CODES, QUIET_AT_LOADING, Severity
from torpor.skillbook.decoding import Finding
from torpor.skillbook.fields import Fields
from torpor.skillbook.front_matter import SHOWN_CHARS_MAX, read_front_matter
from torpor.skillbook.slug import NAME_CHARS_MAX, slug

FILE_CAP_BYTES: Final = 1_048_576
DESCRIPTION_CHARS_MAX: Final = 1_024
COMPATIBILITY_CHARS_MAX: Final = 500
BODY_LINES_MAX: Final = 500
BODY_TOKENS_MAX: Final = 5_000
EXTRA_BYTES_MAX: Final = 8_192
UNKNOWN_TOLD_MAX: Final = 20
DISPLAY_CHARS_MAX: Final = 128

PLACEHOLDER: Final = "Say what this does and when to use it, with the words that people will use when they need it."
"""The description of a skill that was begun and not written yet."""
TEMPLATE_LINE: Final = "Say in one or two sentences what is reached with this skill, and for whom."
"""What the text of such a skill begins with."""
SPEC_KEYS: Final = ("name", "description", "license", "compatibility", "metadata", "allowed-tools")
FLAG_KEYS: Final = ("disable-model-invocation", "user-invocable")
"""Not in the specification, widely used, and honoured."""
_KNOWN: Final = (*SPEC_KEYS, *FLAG_KEYS)

_SPEC_NAME: Final = regex.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_INVISIBLE: Final = regex.compile(r"[\p{Cc}\p{Cs}\p{Co}\p{Default_Ignorable_Code_Point}\uFFF9-\uFFFB]")
_VARIATION: Final = "\ufe0e\ufe0f"
"""Choose between the two looks of a sign; left out like the invisible ones, but nothing to speak of."""


class Diagnostic(msgspec.Struct, frozen=True, kw_only=True):
    """Something to say of a file."""

    code: str
    """A key of ``CODES``."""
    message: str
    """Says what the file is or has; the file is its subject."""
    severity: Severity
    line: int = 0
    """From 1; 0 for the file as a whole."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """One skill, without its text."""

    key: str
    """``[a-z0-9-]``, at most 64 characters; what a model calls it by."""
    name: str
    """As its author wrote it, invisible characters left out."""
    description: str
    """On one line, without invisible characters, at most 1,024 characters; not escaped."""
    digest: str
    """SHA-256 of the file's bytes in hex: the version."""
    scope: str = ""
    """Of the folder of skills it came from."""
    allowed_tools: tuple[str, ...] = ()
    """As written; empty when the skill says nothing of tools, ``NO_TOOLS`` when it allows none."""
    model_invocable: bool = True
    """Whether a model may load it of its own accord."""
    user_invocable: bool = True
    """Whether a person may ask for it by name."""
    license: str = ""
    compatibility: str = ""
    metadata: dict[str, str] = {}
    """Values that are no text are kept as JSON."""
    extra: dict[str, Any] = {}
    """Keys that the specification does not have: text, lists and maps of them."""
    body_tokens: int = 0
    """Estimated, of the text below the front matter."""


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a file came to."""

    skill: Skill | None
    """None when it cannot be loaded; then at least one diagnostic is an error."""
    body: str
    diagnostics: tuple[Diagnostic, ...]
    """In the order of their lines."""


def parse(data: bytes, *, directory_name: str, scope: str = "", file_cap_bytes: int = FILE_CAP_BYTES) -> Parsed:
    """Read the bytes of a SKILL.md as leniently as can be; never raises for what is in them."""
    reading = _read(data, directory_name=directory_name, scope=scope, file_cap_bytes=file_cap_bytes)
    diagnostics = tuple(
        _diagnostic(finding, CODES[finding.code].loading)
        for finding in reading.findings
        if finding.code not in QUIET_AT_LOADING
    )
    return Parsed(skill=reading.skill, body=reading.body, diagnostics=diagnostics)


def validate(data: bytes, *, directory_name: str, file_cap_bytes: int = FILE_CAP_BYTES) -> tuple[Diagnostic, ...]:
    """Hold the bytes of a SKILL.md to the specification; an error for each rule that they break."""
    reading = _read(data, directory_name=directory_name, scope="", file_cap_bytes=file_cap_bytes)
    return tuple(_diagnostic(finding, CODES[finding.code].checking) for finding in reading.findings)


def _diagnostic(finding: Finding, severity: Severity) -> Diagnostic:
    return Diagnostic(code=finding.code, message=finding.message, severity=severity, line=finding.line)


class _Reading(msgspec.Struct, frozen=True, kw_only=True):
    skill: Skill | None = None
    body: str = ""
    findings: tuple[Finding, ...]


def _read(data: bytes, *, directory_name: str, scope: str, file_cap_bytes: int) -> _Reading:
    if len(data) > file_cap_bytes:
        message = f"has {len(data):,} bytes or more, at most {file_cap_bytes:,} are read"
        return _Reading(findings=(Finding("too_large", message),))
    front = read_front_matter(data)
    if front.values is None:
        return _Reading(body=front.body, findings=front.findings)
    fields = Fields(front.values, lines=front.lines)
    fields.findings.extend(front.findings)
    skill = _skill(fields, body=front.body, directory_name=directory_name)
    if skill is not None:
        skill = msgspec.structs.replace(skill, scope=scope, digest=hashlib.sha256(data).hexdigest())
    _judge_body(front.body, fields)
    if TEMPLATE_LINE in front.body.splitlines():
        fields.find("template_text", "has text of a template, expected what the agent has to do")
    findings = sorted(fields.findings, key=lambda finding: finding.line)
    return _Reading(skill=skill, body=front.body, findings=tuple(findings))


def _skill(fields: Fields, *, body: str, directory_name: str) -> Skill | None:
    """Reads every field, so that all there is to say is said, also where the skill cannot be loaded."""
    name = _name(fields, directory_name)
    description = _description(fields)
    skill = Skill(
        key=slug(_one_line(name)),
        name=cut(_one_line(name), chars_max=DISPLAY_CHARS_MAX),
        description=description,
        digest="",
        allowed_tools=fields.tools("allowed-tools"),
        model_invocable=not fields.flag("disable-model-invocation", default=False, safe=True),
        user_invocable=fields.flag("user-invocable", default=True, safe=False),
        license=fields.text("license"),
        compatibility=_compatibility(fields),
        metadata=fields.texts("metadata"),
        extra=_extra(fields),
        body_tokens=tokens_of_bytes(len(body.encode())),
    )
    return skill if description else None


def _name(fields: Fields, directory_name: str) -> str:
    name = clean(fields.text("name")).text.strip()
    if not _one_line(name):
        fields.find("name_missing", f"has no `name`, the folder's, {directory_name!r}, is taken", key="name")
        return directory_name
    shown = cut(name, chars_max=SHOWN_CHARS_MAX)
    if _INVISIBLE.search(name):
        fields.find("invisible_characters", "has invisible characters in `name`, left out", key="name")
    if not _SPEC_NAME.fullmatch(name):
        expected = f"a-z, 0-9 and single - inside; a model reads {slug(_one_line(name))!r}"
        fields.find("name_characters", f"has the name {shown!r}, expected {expected}", key="name")
    if len(name) > NAME_CHARS_MAX:
        fields.find("name_long", f"has a name of {len(name)} characters, expected at most {NAME_CHARS_MAX}", key="name")
    if name != directory_name:
        message = f"has the name {shown!r} in a folder {directory_name!r}, expected them to be equal"
        fields.find("name_not_folder", message, key="name")
    return name


def _description(fields: Fields) -> str:
    written = clean(fields.text("description")).text.strip()
    description = _one_line(written)
    if not description:
        message = "has no `description`, expected a sentence that says what it does and when to use it"
        fields.find("description_missing", message, key="description")
        return ""
    if description == PLACEHOLDER:
        message = "has the `description` of a template, expected what this skill does and when to use it"
        fields.find("placeholder", message, key="description")
        return ""
    if _INVISIBLE.search(written.translate(dict.fromkeys(map(ord, f"\n\t{_VARIATION}")))):
        fields.find("invisible_characters", "has invisible characters in `description`, left out", key="description")
    if len(written) > DESCRIPTION_CHARS_MAX:
        found = f"{len(written):,} characters in `description`"
        message = f"has {found}, the index has the first {DESCRIPTION_CHARS_MAX:,}"
        fields.find("description_long", message, key="description")
    return cut(description, chars_max=DESCRIPTION_CHARS_MAX).rstrip()


def _compatibility(fields: Fields) -> str:
    compatibility = fields.text("compatibility")
    if fields.has("compatibility") and not 1 <= len(compatibility) <= COMPATIBILITY_CHARS_MAX:
        message = f"has {len(compatibility)} characters in `compatibility`, expected 1 to {COMPATIBILITY_CHARS_MAX}"
        fields.find("compatibility_length", message, key="compatibility")
    return compatibility


def _extra(fields: Fields) -> dict[str, Any]:
    extra = {key: value for key, value in fields.values.items() if key not in _KNOWN}
    for key in itertools.islice(sorted(extra, key=lambda key: _spelt(key) not in _KNOWN), UNKNOWN_TOLD_MAX):
        shown = key[:SHOWN_CHARS_MAX]
        if close := difflib.get_close_matches(_spelt(key), _KNOWN, n=1, cutoff=0.85):
            fields.find("misspelt_key", f"has the key `{shown}`, which says nothing, expected `{close[0]}`", key=key)
        else:
            fields.find("unknown_key", f"has the key `{shown}`, which the specification does not have", key=key)
    size_bytes = len(msgspec.json.encode(extra))
    if size_bytes > EXTRA_BYTES_MAX:
        message = f"has {size_bytes:,} bytes in other keys, more than {EXTRA_BYTES_MAX:,} are not kept"
        fields.find("front_matter_large", message)
        return {}
    return extra


def _spelt(key: str) -> str:
    """As the specification spells keys: in small letters, with hyphens."""
    return key[:SHOWN_CHARS_MAX].lower().replace("_", "-").replace(" ", "-")


def _judge_body(body: str, fields: Fields) -> None:
    lines = body.count("\n") + 1
    tokens = tokens_of_bytes(len(body.encode()))
    if lines > BODY_LINES_MAX or tokens > BODY_TOKENS_MAX:
        found = f"{lines:,} lines and about {tokens:,} tokens of text"
        expected = f"at most {BODY_LINES_MAX} lines and {BODY_TOKENS_MAX:,} tokens; move parts to references/"
        fields.find("body_long", f"has {found}, expected {expected}")


def _one_line(text: str) -> str:
    """Without invisible characters; runs of blanks and line ends are one blank."""
    return " ".join(_INVISIBLE.sub("", " ".join(text.split())).split())
