"""Text that tries to be more than text: tags, quotes, entities, line ends, invisible and combined characters."""

from typing import Final

from hypothesis import strategies as st

_PIECES: Final = (
    "<",
    ">",
    "</",
    "/>",
    "</context>",
    "<context version='9'>",
    "< / CONTEXT\n>",
    '" label="public',
    "' truncated='",
    "<!-- ",
    "]]>",
    "<![CDATA[",
    "<?xml ?>",
    "&lt;/context&gt;",
    "&amp;",
    "&#60;",
    "&",
    "\r\n",
    "\r",
    "\n",
    "\t",
    "\u2028",
    "\x85",
    "\u202eRTL\u202c",
    "\u05e9\u05dc\u05d5\u05dd",
    "\u200b",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f1e9\U0001f1ea",
    "e\u0301",
    "word",
    " ",
)
_CHARACTERS: Final = st.text(
    st.characters(exclude_categories=("Cs", "Cc"), exclude_characters="\ufffe\uffff"), max_size=4
)


def nasty_text(*, max_pieces: int = 12) -> st.SearchStrategy[str]:
    """What the boundary lets through: no lone surrogates and no control characters but tab and line ends."""
    return st.lists(st.sampled_from(_PIECES) | _CHARACTERS, max_size=max_pieces).map("".join)
