"""The command line as a person uses it, against a real server in a home that ``torpor init`` made."""

import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Command, ServerProcess

BRISK = "pace_cps = 0"
"""Says everything at once."""
SPOKEN = "pace_cps = 700"
"""Quick, and slow enough to be met in the middle of a sentence."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new home; ``clinic`` answers at once, ``speaker`` takes its time."""
    folder = tmp_path_factory.mktemp("cli") / "home"
    Command(folder.parent).run("init", "home")
    agent = folder / "config" / "agents" / "clinic.toml"
    text = agent.read_text()
    agent.write_text(f"{text}\n{BRISK}\n")
    speaker = text.replace('name = "clinic"', 'name = "speaker"').replace("default = true", "default = false")
    agent.with_name("speaker.toml").write_text(f"{speaker}\n{SPOKEN}\n")
    return folder


@pytest.fixture(scope="module")
def torpor(home: Path) -> Command:
    """The command in that home, where a cancelled write is given up at once."""
    return Command(home, TORPOR__TURN__CANCEL_GRACE_S="0.1")


@pytest.fixture(scope="module")
def server(torpor: Command) -> Iterator[ServerProcess]:
    with torpor.serving() as server:
        yield server


def test_home_that_was_just_made_is_flawless(torpor: Command) -> None:
    findings = torpor.facts("config", "check")

    assert [finding for finding in findings if not finding["ok"]] == []
    assert {finding["part"] for finding in findings} >= {"settings", "agent", "rehearsal", "tool"}


def test_home_is_not_made_on_top_of_something(torpor: Command) -> None:
    assert torpor.complaint("init", ".") == (
        "torpor: . is not empty, name a directory that is, or one that does not exist"
    )


def test_server_says_where_it_is_and_keeps_it_to_its_owner(server: ServerProcess, home: Path) -> None:
    assert set(server.ready) == {"url", "token", "data"}
    assert server.ready["data"] == str(home / ".torpor")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home / ".torpor").iterdir() if path.is_file()}
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
    assert stat.S_IMODE((home / ".torpor").stat().st_mode) == 0o700


def test_second_server_on_the_same_data_is_refused(server: ServerProcess, torpor: Command) -> None:
    assert "in use" in torpor.complaint("serve", "--port", "0", "--log-level", "error")


def test_port_that_is_in_use_is_told_with_the_remedy(server: ServerProcess, torpor: Command, tmp_path: Path) -> None:
    arguments = ["--port", server.port, "--data", str(tmp_path / "data"), "--log-level", "error"]

    assert torpor.complaint("serve", *arguments) == (
        f"torpor: port {server.port} of 127.0.0.1 is in use, name another with --port or let 0 pick one"
    )


def test_host_that_is_none_is_told(torpor: Command, tmp_path: Path) -> None:
    arguments = ["--host", "nowhere.invalid", "--data", str(tmp_path / "data"), "--log-level", "error"]

    assert "'nowhere.invalid', name another with --host" in torpor.complaint("serve", *arguments)


def test_message_is_answered_on_standard_output_alone(server: ServerProcess, torpor: Command) -> None:
    done = torpor.run("send", "When are you open on Thursday?")

    assert done.stdout == "Thursday: 8:00 to 20:00\n"
    assert done.stderr.startswith("torpor: new conversation c-")


def test_message_can_come_from_standard_input(server: ServerProcess, torpor: Command) -> None:
    said = torpor.output("send", "-", "--conversation", "piped", stdin="When are you\nopen on Monday?\n")

    assert said == "Monday: 8:00 to 18:00\n"


def test_facts_of_a_turn_tell_its_tools_and_its_end(server: ServerProcess, torpor: Command) -> None:
    (facts,) = torpor.facts("send", "Record a payment of 45.50 from Ada Lovelace", "--conversation", "facts")

    assert (facts["conversation"], facts["turn"], facts["outcome"]) == ("facts", 1, "finished")
    assert facts["tools"] == [{"name": "record_payment", "outcome": "succeeded"}]
    assert "45.50" in facts["text"]


def test_failed_turn_has_its_own_exit_code(server: ServerProcess, torpor: Command) -> None:
    done = torpor.run("send", "Please fail", "--conversation", "fails", code=3)

    assert done.stdout.startswith("I was about to answer")
    made, failed, _, offer, *_ = done.stderr.splitlines()
    assert made == "torpor: new conversation fails"
    assert failed.startswith("torpor: turn 1 failed, model_unavailable: the rehearsal failed")
    assert "doctor` tells whether the host can be reached" in done.stderr
    command, told = offer.removeprefix("torpor: `").split("` ")
    assert (told, command.endswith(" --resume continue")) == ("has the reply go on where it was cut", True)
    (facts,) = map(json.loads, torpor.shell(f"{command} --json").splitlines())
    assert facts["outcome"] == "finished"
    assert "needs --conversation" in torpor.run("send", "--resume", "retry", code=2).stderr


def test_send_says_that_a_model_that_failed_is_asked_again_and_the_log_that_it_gave_up(
    torpor: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hurried = Command(torpor.directory, TORPOR__RETRY__BASE_S="0.01", TORPOR__RETRY__RETRIES_MAX="2")
    with hurried.serving("--data", str(tmp_path / "data")) as server:
        done = hurried.run("send", "Please fail again and again", *server.where, code=3)

    asked, *_ = [line for line in done.stderr.splitlines() if "asked again" in line]
    assert asked == "torpor: the model failed, model_unavailable; it is asked again at once"
    assert done.stderr.count("asked again") == 2
    (failed,) = [line for line in capfd.readouterr().err.splitlines() if "turn.failed" in line]
    assert "agent=clinic" in failed
    assert "code=model_unavailable" in failed


def test_steered_message_is_answered_by_the_turn_that_it_joins_or_starts(
    server: ServerProcess, torpor: Command
) -> None:
    said = torpor.output("send", "When are you open on Friday?", "--when-busy", "steer", "--conversation", "steer")

    assert said == "Friday: 8:00 to 16:00\n"


def test_conversation_is_listed_hibernated_thawed_and_inspected_by_its_short_name(
    server: ServerProcess, torpor: Command
) -> None:
    torpor.run("send", "When are you open?", "--conversation", "sleeper")

    def actor() -> str:
        (row,) = [row for row in torpor.facts("ps") if row["conversation"] == "sleeper"]
        assert (row["state"], row["path"]) == ("rest", "default/developer/sleeper")
        return str(row["actor"])

    assert actor() == "idle"
    assert torpor.output("hibernate", "sleeper") == "developer/sleeper sleeps\n"
    assert actor() == "hibernated"
    assert torpor.output("thaw", "developer/sleeper") == "developer/sleeper is awake\n"
    assert actor() == "idle"
    kinds = [row["kind"] for row in torpor.facts("inspect", "default/developer/sleeper")]
    assert kinds[0] == "conversation_created"
    assert kinds[-1] == "turn_finished"


def test_conversation_is_set_aside_with_a_reason_that_is_told_and_released(
    server: ServerProcess, torpor: Command
) -> None:
    torpor.run("send", "When are you open?", "--conversation", "odd")

    assert torpor.output("quarantine", "odd", "--reason", "a customer asked") == "developer/odd is quarantined\n"
    refused = torpor.complaint("send", "Hello?", "--conversation", "odd")
    assert "is quarantined (a customer asked), an operator must release it (quarantined)" in refused
    (row,) = [row for row in torpor.facts("ps") if row["conversation"] == "odd"]
    assert (row["state"], row["quarantine"], row["quarantine_kind"]) == ("quarantined", "a customer asked", "operator")
    assert "quarantined (a customer asked)" in torpor.output("ps")
    for where in ([], ["--data", server.ready["data"]]):
        first, *rest = torpor.output("inspect", "odd", *where).splitlines()
        assert first.startswith("quarantined (operator, ")
        assert first.endswith(f" ago, after record {row['quarantine_seq']}): a customer asked")
        assert rest
        standing, *records = torpor.facts("inspect", "odd", *where)
        assert standing == {name: value for name, value in row.items() if name.startswith("quarantine")}
        assert len(records) <= len(rest)
    assert torpor.output("release", "odd") == "developer/odd is released\n"
    assert torpor.output("send", "When are you open on Friday?", "--conversation", "odd") == "Friday: 8:00 to 16:00\n"
    assert not torpor.output("inspect", "odd").startswith("quarantined")


def test_file_tells_the_same_as_the_server(server: ServerProcess, torpor: Command) -> None:
    torpor.run("send", "When are you open?", "--conversation", "filed")
    data = server.ready["data"]

    assert torpor.facts("inspect", "filed", "--data", data) == torpor.facts("inspect", "filed")
    asked, read = torpor.facts("ps"), torpor.facts("ps", "--data", data)
    assert [row | {"actor": ""} for row in asked] == read


def test_timeline_holds_what_was_said_only_when_asked(server: ServerProcess, torpor: Command) -> None:
    torpor.run("send", "Find the appointments of Ada Lovelace", "--conversation", "private")

    shown = torpor.output("inspect", "private")
    assert "Lovelace" not in shown
    assert shown.splitlines()[-1].startswith("tokens estimated for 2 requests, median error ")
    assert "| Find the appointments of Ada Lovelace" in torpor.output("inspect", "private", "--content")


def test_people_see_their_own_conversations_and_operators_all(server: ServerProcess, torpor: Command) -> None:
    torpor.run("send", "hello", "--conversation", "mine")
    eve = torpor.output("token", "--subject", "eve", "--ttl", "5m").strip()
    watcher = torpor.output("token", "--subject", "watcher", "--scope", "operator", "--ttl", "5m").strip()

    assert torpor.facts("ps", "--token", eve) == []
    assert "default/developer/mine" in [row["path"] for row in torpor.facts("ps", "--token", watcher)]
    assert torpor.complaint("inspect", "default/developer/mine", "--token", eve).startswith(
        "torpor: inspect needs the scope 'operator'"
    )


def test_message_goes_where_the_name_of_its_conversation_means(server: ServerProcess, torpor: Command) -> None:
    made = torpor.run("send", "hello", "--conversation", "errands", "--token", _token(torpor, "ada"))
    theirs = torpor.run("send", "hello again", "--conversation", "errands")
    torpor.run("send", "hello", "--conversation", "errands", "--token", _token(torpor, "bob"))
    both = torpor.complaint("send", "hello", "--conversation", "errands")
    own = torpor.run("send", "hello", "--conversation", "default/developer/errands")
    again = torpor.run("send", "hello again", "--conversation", "errands")
    chatted = torpor.output("chat", "--conversation", "bob/errands", stdin="hello\n")

    assert made.stderr == "torpor: new conversation errands\n"
    assert theirs.stderr == "torpor: this is ada/errands\n"
    assert both == "torpor: conversation 'errands' may be any of ada/errands, bob/errands, name more of it"
    assert (own.stderr, again.stderr) == ("torpor: new conversation default/developer/errands\n", "")
    assert chatted.startswith("(conversation bob/errands; ")
    there = {row["path"] for row in torpor.facts("ps") if row["conversation"] == "errands"}
    assert there == {"default/ada/errands", "default/bob/errands", "default/developer/errands"}


def _token(torpor: Command, subject: str) -> str:
    return torpor.output("token", "--subject", subject, "--ttl", "5m").strip()


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["hibernate", "nothing"], 1, "torpor: no conversation 'nothing' here, `torpor ps` lists them"),
        (["ps", "--token", "forged"], 1, "torpor: token is not a valid token, expected a JSON Web Token"),
        (["ps", "--url", "ws://127.0.0.1:1", "--token", "t"], 1, "torpor: cannot reach ws://127.0.0.1:1, is it"),
        (["ps", "--url", "http://127.0.0.1:1", "--token", "t"], 2, "torpor: invalid value for --url: 'http://"),
        (["ps", "--url", "ws://127.0.0.1:99999", "--token", "t"], 2, "torpor: invalid value for --url: 'ws://"),
        (["release", "nothing"], 1, "torpor: no conversation 'nothing' here, `torpor ps` lists them"),
        (["quarantine", "a/b/c", "--reason", "x"], 1, "torpor: no conversation 'a/b/c' here (unknown_conversation)"),
        (["quarantine", "nothing"], 2, "torpor: missing option '--reason'; see `torpor quarantine --help`"),
        (["thaw", "a/b/c"], 1, "torpor: no conversation 'a/b/c' here (unknown_conversation); `torpor ps` lists"),
        (["ps", "--home", "nowhere"], 1, "torpor: home nowhere does not exist, name an agent home, or make one with `"),
        (["ps", "--data", "nowhere"], 1, "torpor: nowhere/torpor.db does not exist"),
        (["send", "   ", "--conversation", "blank"], 1, "torpor: message has no visible text"),
        (["send", "hi", "--conversation", "a b"], 1, "torpor: conversation 'a b' is not a name"),
        (["send", "hi", "--conversation", "x", "--agent", "nobody"], 1, "torpor: no agent 'nobody' in this home"),
        (["fork", "x", "ann/x"], 2, "torpor: invalid value for NEW_ID: 'ann/x' is no id, expected 1 to 64 letters"),
        (["send"], 2, "torpor: missing argument 'TEXT'; see `torpor send --help`"),
        (["send", ""], 2, "torpor: the TEXT is empty, expected words, or - to read standard input"),
        (["chat", "--conversation", "x y"], 1, "torpor: conversation 'x y' is not a name"),
        (["serve", "--port", "99999"], 2, "torpor: invalid value for '--port': 99999 is not in the range"),
    ],
)
def test_fault_is_one_line_that_names_the_value_and_what_to_do(
    server: ServerProcess, torpor: Command, arguments: list[str], code: int, complaint: str
) -> None:
    assert torpor.complaint(*arguments, code=code).startswith(complaint)


def test_home_without_a_server_is_told_how_to_start_one(tmp_path: Path) -> None:
    complaint = Command(tmp_path).complaint("ps")

    assert complaint.startswith(f"torpor: no server has run in {tmp_path}, start one with `")
    assert complaint.endswith(" serve`, or name it with --url and --token, or have a data folder read with --data DIR")
    assert Command(tmp_path).complaint("hibernate", "x").endswith(" serve`, or name it with --url and --token")


def test_server_of_another_home_that_took_the_port_is_told_as_such(server: ServerProcess, tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / ".torpor").mkdir()
    left = {"url": server.ready["url"], "token": "of.another.secret", "pid": ended.pid}
    (tmp_path / ".torpor" / "server.json").write_text(json.dumps(left))

    complaint = Command(tmp_path).complaint("ps")

    assert complaint.startswith(f"torpor: the server at {server.ready['url']} is another home's, that of {tmp_path} ")
    assert complaint.endswith(" serve --port 0` starts it on a free port")


def test_copy_of_a_served_home_leaves_the_server_of_the_original_alone(
    server: ServerProcess, torpor: Command, tmp_path: Path
) -> None:
    torpor.run("create", "keep")
    copy = Path(shutil.copytree(torpor.directory, tmp_path / "copy"))
    linked = Path(shutil.copytree(torpor.directory, tmp_path / "linked", copy_function=os.link))
    found = f"is a copy, and the server at {server.ready['url']} is that of the folder that it was copied from"

    for verb in (("delete", "keep", "--yes"), ("drain",), ("ps",)):
        complaint = torpor.complaint(*verb, "--home", str(copy))
        assert complaint.startswith(f"torpor: {copy} {found}; `")
        assert complaint.endswith(f" serve --home {copy} --port 0` starts one here, --url names another")
    assert torpor.complaint("ps", "--home", str(linked)).startswith(f"torpor: {linked} {found}")
    assert "keep" in torpor.output("ps", "--home", str(copy), *server.where)
    seen = tmp_path / "seen"
    seen.symlink_to(torpor.directory)
    assert "keep" in torpor.output("ps", "--home", str(seen))

    file = copy / ".torpor" / "server.json"
    left = json.loads(file.read_text())
    file.write_text(json.dumps({**left, "url": "ws://127.0.0.1:9"}))
    gone = "torpor: cannot reach ws://127.0.0.1:9, is it running?"
    assert torpor.complaint("ps", "--home", str(copy)).startswith(gone)
    file.write_text(json.dumps({name: value for name, value in left.items() if name != "written_in"}))
    assert "keep" in torpor.output("ps", "--home", str(copy))  # as servers before wrote it


def test_token_found_in_a_home_is_given_to_its_own_server_alone(server: ServerProcess, torpor: Command) -> None:
    assert torpor.complaint("ps", "--url", "ws://127.0.0.1:9") == (
        "torpor: no token for ws://127.0.0.1:9, name one with --token or TORPOR_TOKEN"
    )


def test_wrong_settings_keep_a_server_from_starting_and_are_all_told(torpor: Command, tmp_path: Path) -> None:
    wrong = Command(torpor.directory, TORPOR__ACTOR__MAILBOX_CAPACITY="many", TORPOR__NOWHERE="1")

    lines = wrong.run("serve", "--data", str(tmp_path / "data"), code=1).stderr.splitlines()

    assert lines[0] == "torpor: environment: TORPOR__ACTOR__MAILBOX_CAPACITY is 'many', expected int"
    assert lines[1].startswith("torpor: environment: TORPOR__NOWHERE is unknown, expected")
    assert not (tmp_path / "data").exists()


def test_check_tells_what_is_wrong_with_agents_scripts_and_tools(tmp_path: Path) -> None:
    torpor = Command(tmp_path)
    torpor.run("init", "home")
    home = tmp_path / "home"
    (home / "tools" / "broken.py").write_text("import nothing_like_it\n")
    agent = home / "config" / "agents" / "clinic.toml"
    agent.with_name("dreamer.toml").write_text('name = "dreamer"\nsystem = "s"\n[model]\nkind = "oracle"\n')
    agent.write_text(agent.read_text().replace('"record_payment"', '"fly"'))

    findings = torpor.facts("config", "check", "--home", "home", code=1)

    wrong = {finding["name"]: finding["detail"] for finding in findings if not finding["ok"]}
    (doubtful,) = [finding for finding in findings if finding["doubtful"] and finding["part"] == "agent"]
    assert doubtful["detail"].startswith("tools names fly, which this home has not; ")
    assert wrong["config/rehearsals/clinic.toml"] == "calls record_payment, which its agent has not"
    assert wrong["config/agents/dreamer.toml"] == "model.kind is 'oracle', expected one of anthropic, local, scripted"
    assert "nothing_like_it" in wrong["tools/broken.py:1"]
    assert len(wrong) == 3


def test_chat_through_pipes_answers_every_line_and_ends_with_the_input(server: ServerProcess, torpor: Command) -> None:
    shown = torpor.output("chat", "--conversation", "pipes", stdin="Are you open on Monday?\n\nAnd open on Friday?\n")

    said = [line for line in shown.splitlines() if line.startswith("you> ")]
    answered = [line for line in shown.splitlines() if not line.startswith(("you> ", "("))]
    assert said == ["you> Are you open on Monday?", "you> And open on Friday?"]
    looked = ["Let me look.", "  · opening_hours (read)", "  · opening_hours: done"]
    assert answered == [*looked, "Monday: 8:00 to 18:00", *looked, "Friday: 8:00 to 16:00"]


def test_ctrl_c_cancels_the_turn_and_at_the_prompt_leaves(server: ServerProcess, torpor: Command) -> None:
    with torpor.chat("--conversation", "ctrl-c", "--agent", "speaker") as terminal:
        terminal.expect("> ")
        terminal.type("Something slow\n")
        terminal.expect("record_payment: waiting for the card terminal")
        terminal.press_ctrl_c()
        terminal.expect("(cancelling)")
        terminal.expect("record_payment: outcome unknown")
        terminal.expect("(cancelled)")
        terminal.expect("> ")
        terminal.type("Are you open on Monday?\n")
        terminal.expect("Monday: 8:00 to 18:00\n> ")
        terminal.press_ctrl_c()

        assert terminal.ended() == 0


def test_chat_goes_on_in_an_older_conversation_and_recalls_its_end(server: ServerProcess, torpor: Command) -> None:
    torpor.run("send", "Are you open on Monday?", "--conversation", "older")

    with torpor.chat("--conversation", "older") as terminal:
        terminal.expect("developer> Are you open on Monday?\n")
        terminal.expect("Monday: 8:00 to 18:00\n> ")
        terminal.type("\x04")  # Ctrl-D, the end of input

        assert terminal.ended() == 0


def test_chat_survives_a_server_that_is_killed_in_mid_sentence(torpor: Command, tmp_path: Path) -> None:
    with torpor.serving("--data", str(tmp_path / "data")) as server:
        with torpor.chat("--conversation", "c", "--agent", "speaker", *server.where) as terminal:
            terminal.expect("> ")
            terminal.type("A long answer\n")
            terminal.expect("This is a long answer")
            server.kill()
            terminal.expect("(connection lost, trying again)")
            server.start()
            terminal.expect("(connected again)")
            terminal.expect("(the reply begins again)")
            terminal.expect("This is a long answer")
            terminal.expect("will not have forgotten a word of this.\n> ")
            terminal.press_ctrl_c()

            assert terminal.ended() == 0
        assert "client." not in terminal.shown  # the log of the client is not for people


def test_send_tells_that_the_server_went_away_and_came_back(torpor: Command, tmp_path: Path) -> None:
    with torpor.serving("--data", str(tmp_path / "data")) as server:
        sending = torpor.sending("A long answer", "--agent", "speaker", *server.where)
        sending.until("new conversation")
        server.kill()
        sending.until("lost, trying again for 60 s")
        server.start()
        done = sending.end(code=0)

    assert done.stderr.splitlines()[1:] == [
        f"torpor: connection to {server.ready['url']} lost, trying again for 60 s",
        "torpor: connected again",
    ]
    assert done.stdout.startswith("This is a long answer")
    assert done.stdout.endswith("will not have forgotten a word of this.\n")


def test_send_gives_a_server_up_that_stays_away_and_says_what_became_of_the_message(
    torpor: Command, tmp_path: Path
) -> None:
    with torpor.serving("--data", str(tmp_path / "data")) as server:
        sending = torpor.sending("A long answer", "--agent", "speaker", "--reconnect", "0.2", *server.where)
        sending.until("new conversation")
        server.kill()
        done = sending.end(code=1)

    assert done.stdout == ""
    *_, told = done.stderr.splitlines()
    assert told.startswith(
        f"torpor: no reply and no connection to {server.ready['url']} for 0.2 s, connection refused; the message was"
    )
    assert "chat --conversation c-" in told


def test_message_that_nobody_acknowledged_can_be_sent_again_and_stays_one(torpor: Command, tmp_path: Path) -> None:
    with torpor.serving("--data", str(tmp_path / "data")) as server:
        told = torpor.complaint("send", "Hello", "--conversation", "c1", "--timeout", "0.0001", *server.where)
        message_id = told.partition("--message-id ")[2].partition(" ")[0]
        again = ("send", "Hello", "--conversation", "c1", "--message-id", message_id, *server.where)
        replies = [torpor.facts(*again)[0] for _ in range(2)]

    assert "the message was not acknowledged" in told
    assert [(reply["turn"], reply["outcome"]) for reply in replies] == [(1, "finished")] * 2
    assert replies[0] == replies[1]


def test_server_ends_well_at_sigterm_and_leaves_a_file_that_can_be_read(torpor: Command, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with torpor.serving("--data", data) as server:
        address = ["--url", server.ready["url"], "--token", server.ready["token"]]
        torpor.run("send", "hello", "--conversation", "c", *address)
        assert server.stop() == 0

    assert [row["state"] for row in torpor.facts("ps", "--data", data)] == ["rest"]


def test_address_in_the_home_is_that_of_the_last_server(server: ServerProcess, home: Path, torpor: Command) -> None:
    assert torpor.facts("ps", "--home", os.path.relpath(home, torpor.directory)) == torpor.facts("ps")


def test_what_is_typed_while_a_reply_streams_is_sent_whole_and_the_terminal_is_left_as_it_was(
    server: ServerProcess, torpor: Command
) -> None:
    with torpor.chat("--conversation", "typed", "--agent", "speaker") as terminal:
        before = terminal.modes()
        terminal.expect("> ")
        terminal.type("A long answer\n")
        terminal.expect("This is a long answer")
        terminal.type("When are you opne")
        terminal.type("\x7f\x7fen on Thursday?")
        terminal.expect("> When are you open on Thursday?")
        assert terminal.modes() != before
        terminal.type("\n")
        terminal.expect("will not have forgotten a word of this.\n")
        terminal.expect("Thursday: 8:00 to 20:00\n")
        terminal.expect("> ")
        terminal.type("\x04")

        assert terminal.ended() == 0
        assert terminal.modes() == before
