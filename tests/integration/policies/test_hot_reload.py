"""Edits of config/policies reach a book that is open."""

from pathlib import Path

import anyio

from torpor.policies.book import PolicyBook
from torpor.policies.options import PolicyOptions


class ToldBook(PolicyBook):
    """Says after each reading that it was done."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, options=PolicyOptions())
        self.read = anyio.Event()

    async def refresh(self) -> None:
        await super().refresh()
        self.read.set()
        self.read = anyio.Event()


def policy(version: int, text: str) -> str:
    return f"---\nid: visits\nversion: {version}\n---\n# Late\n{text}\n"


async def until_found(book: ToldBook, text: str, *, version: str | None) -> None:
    """Wait for the reading after which ``text`` finds that version, or nothing."""
    with anyio.fail_after(20):
        while True:
            read = book.read
            found = {excerpt.version for excerpt in book.search(text, limit=1, budget_tokens=100)}
            if found == ({version} if version else set()):
                return
            await read.wait()


async def test_edits_are_taken_while_the_book_is_open(tmp_path: Path) -> None:
    folder = tmp_path / "config" / "policies"
    (tmp_path / "config").mkdir()
    book = ToldBook(tmp_path)
    book.load()

    async with book.watching():
        with anyio.fail_after(20):
            await book.read.wait()  # the watch has begun
        folder.mkdir()
        (folder / "visits.md").write_text(policy(1, "Whoever is late waits."))
        await until_found(book, "late", version="1")

        broken = book.read
        (folder / "visits.md").write_text("no policy")
        with anyio.fail_after(20):
            await broken.wait()
        await until_found(book, "late", version="1")

        (folder / "visits.md").write_text(policy(2, "Whoever is late waits longer."))
        await until_found(book, "late", version="2")
        (folder / "visits.md").unlink()
        await until_found(book, "late", version=None)
