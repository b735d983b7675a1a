"""What a tool in a process reports is bounded, ends with the latest, and is over with the call."""

import threading

from torpor.toolhost.process_progress import Progress


def test_the_first_and_the_last_are_sent_and_few_between() -> None:
    sent: list[str] = []
    progress = Progress(sent.append)
    for number in range(10_000):
        progress.report(str(number))
    progress.end()
    assert (sent[0], sent[-1]) == ("0", "9999")
    assert len(sent) < 1_000
    assert sent == sorted(sent, key=int)


def test_what_waits_is_sent_without_another_report() -> None:
    sent: list[str] = []
    told = threading.Event()

    def send(text: str) -> None:
        sent.append(text)
        if text == "two":
            told.set()

    progress = Progress(send)
    progress.report("one")
    progress.report("two")
    assert told.wait(10.0)
    progress.end()
    assert sent == ["one", "two"]


def test_nothing_is_sent_after_the_end() -> None:
    sent: list[str] = []
    progress = Progress(sent.append)
    progress.end()
    progress.report("late")
    assert sent == []
