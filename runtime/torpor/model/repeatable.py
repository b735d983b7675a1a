"""What of a reply's blocks a later request may repeat: pure.

A request with a block or a field that its host does not know is refused, and so is every request after it, for the
block stays in the history. Hosts add fields and kinds of blocks at any time; so what is kept is what requests are known
to take, by name and type, and nothing else.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from torpor.conversation.text import clean
from torpor.records.blocks import Block, canonical, head_of, result_of
from torpor.records.nesting import is_deep

_HOSTS_TOOLS: Final = {
    "web_search": "web_search_tool_result",
    "web_fetch": "web_fetch_tool_result",
    "code_execution": "code_execution_tool_result",
    "bash_code_execution": "bash_code_execution_tool_result",
    "text_editor_code_execution": "text_editor_code_execution_tool_result",
    "tool_search_tool_regex": "tool_search_tool_result",
    "tool_search_tool_bm25": "tool_search_tool_result",
}
"""Tools that the host runs itself, and the type of what each of them leaves."""
_HOSTS_RESULTS: Final = frozenset(_HOSTS_TOOLS.values())
_CALL: Final = "server_tool_use"
_OPTIONAL: Final = type(None)
_CITATIONS: Final[Mapping[str, Mapping[str, tuple[type, ...]]]] = {
    "char_location": {
        "document_index": (int,),
        "document_title": (str, _OPTIONAL),
        "start_char_index": (int,),
        "end_char_index": (int,),
    },
    "page_location": {
        "document_index": (int,),
        "document_title": (str, _OPTIONAL),
        "start_page_number": (int,),
        "end_page_number": (int,),
    },
    "content_block_location": {
        "document_index": (int,),
        "document_title": (str, _OPTIONAL),
        "start_block_index": (int,),
        "end_block_index": (int,),
    },
    "web_search_result_location": {"url": (str,), "title": (str, _OPTIONAL), "encrypted_index": (str,)},
    "search_result_location": {
        "search_result_index": (int,),
        "source": (str,),
        "title": (str, _OPTIONAL),
        "start_block_index": (int,),
        "end_block_index": (int,),
    },
}
"""By type, the fields beside ``cited_text``."""


def repeatable(fields: Mapping[str, Any]) -> Block | None:
    """The block as a request may hold it; None for one that no request may.

    A tool call keeps whatever it has for arguments, and may lack an id or a name: it is answered, whatever it is.
    """
    match fields.get("type"):
        case "text":
            kept: dict[str, Any] = {"text": clean(_str(fields, "text")).text}
            if citations := _citations(fields.get("citations")):
                kept["citations"] = citations
        case "thinking":
            kept = {"thinking": _str(fields, "thinking"), "signature": _str(fields, "signature")}
        case "redacted_thinking":
            kept = {"data": _str(fields, "data")}
            if not kept["data"]:
                return None
        case "tool_use":
            kept = {"id": _str(fields, "id"), "name": _str(fields, "name")}
            if "input" in fields:
                kept["input"] = fields["input"]
            if fields.get("caller") == {"type": "direct"}:
                kept["caller"] = fields["caller"]
        case "server_tool_use":
            kept = {"id": _str(fields, "id"), "name": _str(fields, "name"), "input": fields.get("input")}
            if kept["name"] not in _HOSTS_TOOLS or not isinstance(kept["input"], dict):
                return None
        case str() as type_ if type_ in _HOSTS_RESULTS:
            kept = {"tool_use_id": _str(fields, "tool_use_id"), "content": fields.get("content")}
            if not isinstance(kept["content"], dict | list):
                return None
        case _:
            return None
    return None if is_deep(kept) else canonical({"type": fields["type"], **kept})


def unpaired(blocks: Sequence[Block]) -> frozenset[int]:
    """Places of what the host's own tools left that is no whole pair, a call and its one result behind it.

    When there are any, text may cite what is gone, see ``uncited``.
    """
    types = [head_of(block).type for block in blocks]
    calls: dict[str, list[int]] = {}
    results: dict[str, list[int]] = {}
    for place, (block, type_) in enumerate(zip(blocks, types, strict=True)):
        if type_ == _CALL:
            calls.setdefault(head_of(block).id, []).append(place)
        elif type_ in _HOSTS_RESULTS:
            results.setdefault(result_of(block), []).append(place)
    whole: set[int] = set()
    for id_, places in calls.items():
        pair = (*places, *results.get(id_, ()))
        if id_ and len(pair) == 2 and len(places) == 1 and pair[0] < pair[1]:
            call, result = pair
            if types[result] == _HOSTS_TOOLS[head_of(blocks[call]).name]:
                whole |= {call, result}
    found = {place for places in (*calls.values(), *results.values()) for place in places}
    return frozenset(found - whole)


def uncited(block: Block) -> Block:
    """A text block without its citations; any other as it is."""
    head = head_of(block)
    return canonical({"type": "text", "text": head.text}) if head.type == "text" else block


def _str(fields: Mapping[str, Any], name: str) -> str:
    """Some hosts leave a field out, or say null."""
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _citations(told: object) -> list[dict[str, Any]]:
    """Those that are whole, with the fields that requests take."""
    kept = []
    for citation in told if isinstance(told, list) else ():
        known = _CITATIONS.get(str(citation.get("type"))) if isinstance(citation, dict) else None
        if known is None:
            continue
        wanted: Mapping[str, tuple[type, ...]] = {"cited_text": (str,), **known}
        if all(name in citation and type(citation[name]) in types for name, types in wanted.items()):
            kept.append({"type": citation["type"], **{name: citation[name] for name in wanted}})
    return kept
