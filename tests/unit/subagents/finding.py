"""A finding in one word."""

from typing import Any

from torpor.toolhost.contract import Finding


def a_finding(id_: str, **fields: Any) -> Finding:
    return Finding(**{"id": id_, "title": f"about {id_}", "locator": f"here:{id_}", "excerpt": "words", **fields})
