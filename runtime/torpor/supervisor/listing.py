"""Every row of an owner in the directory of a store, which gives them page by page."""

from typing import Final

from torpor.store.contract import DirectoryRow, Store

_PAGE_ROWS: Final = 500


async def rows_of(store: Store, *, tenant: str, owner: str) -> list[DirectoryRow]:
    """In order of their keys. Raises: StoreError."""
    rows: list[DirectoryRow] = []
    while True:
        after = rows[-1].key if rows else None
        page = await store.list_conversations(tenant=tenant, owner=owner, limit=_PAGE_ROWS, after=after)
        rows.extend(page)
        if len(page) < _PAGE_ROWS:
            return rows
