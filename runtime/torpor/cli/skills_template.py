"""What a new SKILL.md begins with."""

from typing import Final

import msgspec

from torpor.skillbook.parse import TEMPLATE_LINE

_TEMPLATE: Final = """\
---
name: {name}
description: {description}
---

# {title}

{first}

## Before you begin

- What has to be known first, and where it comes from: the user, or a tool.
- When to stop and ask instead.

## Steps

1. One thing at a time, each with the tool that does it.
2. What to check before the next one.
3. What to tell the user at the end.

## When something is missing or goes wrong

- What to say, and what never to do on one's own.

## Example

> User: what somebody would write
>
> You: what the answer should look like

Long tables and rare cases belong in files under references/, each named here with when to read it: they cost nothing
until they are read.
"""


def skill_text(name: str, *, description: str) -> str:
    """A SKILL.md to be filled in; it passes its check once the description is not ``parse.PLACEHOLDER``."""
    # JSON in quotes is YAML too, whatever the text.
    quoted = msgspec.json.encode(description).decode()
    title = name.replace("-", " ").capitalize()
    return _TEMPLATE.format(name=name, description=quoted, title=title, first=TEMPLATE_LINE)
