"""A toy tokenizer: words in pieces of six letters, numbers in pieces of three digits, every other sign by itself.

It is deterministic, adds up over segments, and deliberately is no multiple of the bytes, so that whoever estimates
tokens has something to calibrate.
"""

import math
import re
from functools import lru_cache
from typing import Any, Final

import msgspec

from torpor_fake_api.images import Pixels, pixels
from torpor_fake_api.models import ModelFacts
from torpor_fake_api.rules.case import dicts
from torpor_fake_api.rules.pictures import decoded, pages

BLOCK_TOKENS: Final = 2
MESSAGE_TOKENS: Final = 3
TOOL_TOKENS: Final = 8
TOOLS_TOKENS: Final = 120
"""Once, for telling the model how to call tools."""
IMAGE_MAX_TOKENS: Final = 1_600
PAGE_TOKENS: Final = 1_500

_PIECE: Final = re.compile(r"[A-Za-z]{1,6}|[0-9]{1,3}|\s{2,}|[^\sA-Za-z0-9]")


@lru_cache(maxsize=2048)
def pieces(text: str) -> int:
    """Pieces of ``text``; single spaces go with their word."""
    return len(_PIECE.findall(text))


def text_tokens(text: str, model: ModelFacts) -> int:
    return math.ceil(pieces(text) * model.token_ratio)


def json_tokens(value: Any, model: ModelFacts) -> int:
    return text_tokens(msgspec.json.encode(value).decode(), model)


def block_tokens(block: dict[str, Any], model: ModelFacts) -> int:
    """Tokens of one content block of a valid request."""
    match block:
        case {"type": "text", "text": str(text)}:
            inner = text_tokens(text, model)
        case {"type": "thinking", "thinking": str(text)}:
            inner = text_tokens(text, model)
        case {"type": "redacted_thinking", "data": str(data)}:
            inner = len(data) // 8
        case {"type": "tool_result", **fields}:
            inner = _result_tokens(fields.get("content", ""), model)
        case {"type": "image", "source": source}:
            inner = _image_tokens(source)
        case {"type": "document", "source": source}:
            inner = _document_tokens(source, model)
        case _:
            inner = json_tokens({key: value for key, value in block.items() if key not in {"type", "id"}}, model)
    return inner + BLOCK_TOKENS


def _result_tokens(content: Any, model: ModelFacts) -> int:
    if isinstance(content, str):
        return text_tokens(content, model)
    return sum(block_tokens(block, model) for block in dicts(content))


def _image_tokens(source: dict[str, Any]) -> int:
    size = pixels(decoded(source.get("data"))) or Pixels(1000, 1000)
    return min(math.ceil(size.width * size.height / 750), IMAGE_MAX_TOKENS)


def _document_tokens(source: dict[str, Any], model: ModelFacts) -> int:
    if source.get("type") == "text":
        return text_tokens(source["data"], model)
    return max(pages(decoded(source.get("data"))), 1) * PAGE_TOKENS
