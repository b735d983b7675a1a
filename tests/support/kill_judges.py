"""What all judges find in what the servers of a kill test left, once they are gone.

Above: whoever had them killed, drained or replaced. Below: the judges, each with a view of its own: the database, the
tools' book, the model's log, the log of the clients.
"""

from pathlib import Path

from tests.support.aside_checker import context_faults, flag_faults, live_faults, skill_faults
from tests.support.child_checker import accounts_of, asking_faults, bundle_faults, child_faults
from tests.support.client_checker import client_faults
from tests.support.effects_checker import deeds_of, effect_faults, lines_of, model_faults
from tests.support.fold_checker import fold_faults
from tests.support.journal_checker import Account, answer_faults, journal_faults, read_journals


def accounts_in(folder: Path) -> dict[str, Account]:
    """Of all journals, by path, those of sub-agents among them. Args: folder: with a home and a data folder."""
    return accounts_of(read_journals(folder / "data" / "torpor.db"))


def judged(folder: Path) -> tuple[list[str], int]:
    """What is wrong, and how many conversations there are. Args: folder: as above, with the log of the clients, if
    they kept one."""
    home, data = folder / "home", folder / "data"
    journals = read_journals(data / "torpor.db")
    accounts = accounts_of(journals)
    own = [path for path, journal in journals.items() if not journal.is_child]
    book, model = lines_of(home / "book.jsonl"), lines_of(home / "model.jsonl")
    found = [fault for path in journals for fault in journal_faults(journals[path], accounts[path])]
    found += (fault for path in own for fault in answer_faults(path, accounts[path]))
    found += effect_faults(accounts, deeds_of(book))
    found += model_faults(journals, accounts, model)
    found += asking_faults(journals, accounts, model)
    found += child_faults(journals, accounts)
    found += bundle_faults(journals, accounts, blobs=data / "blobs")
    skill = (home / "skills" / "counting-money" / "SKILL.md").read_bytes()
    for path, journal in journals.items():
        found += fold_faults(path, accounts[path])
        found += live_faults(journal, model)
        found += flag_faults(journal)
        found += skill_faults(path, accounts[path], file=skill)
    if (log := folder / "client.jsonl").exists():
        client = lines_of(log)
        found += client_faults(journals, {path: accounts[path] for path in own}, client)
        found += (fault for journal in journals.values() for fault in context_faults(journal, client))
    return found, len(own)
