"""Sub-agents as a person meets them in the home that `torpor init` makes: in a chat, in `ps`, and in `inspect`."""

import json
from pathlib import Path

from tests.support.command_line import Command, set_pace

QUESTION = "What is the evidence on falls?"


def test_a_chat_shows_who_works_and_inspect_shows_how(tmp_path: Path) -> None:
    office = Command(tmp_path)
    office.run("init", ".")
    set_pace(tmp_path, 0)
    with office.serving() as server:
        shown = office.run("chat", "--conversation", "c1", stdin=f"{QUESTION}\n").stdout.splitlines()
        (row,) = office.facts("ps")
        *_, last = journal = office.facts("inspect", "c1")
        (ended,) = (each for each in journal if each["kind"] == "subagent_finished")
        child = ended["facts"]["child"]
        told = office.output("inspect", "c1")
        work = office.facts("inspect", "c1", "--child", child)
        request = json.loads(office.output("inspect", "developer/c1", "--child", child, "--request"))
        filing = ("--data", server.ready["data"])
        filed = office.facts("inspect", "c1", "--child", child, *filing)
        budget = office.facts("inspect", "c1", "--child", child, "--budget")
        used_up = office.output("inspect", "c1", "--child", child, "--budget").splitlines()[-1]
        short = [office.facts("inspect", "c1", "--child", child[:4], *where) for where in ((), filing)]
        missing = office.complaint("inspect", "c1", "--child", "nobody")
        missing_in_file = office.complaint("inspect", "c1", "--child", "nobody", "--data", server.ready["data"])

    assert "  · spawn_research_agent at work" in shown
    assert any(line.startswith("  · spawn_research_agent answered after 3 steps, ") for line in shown)
    assert json.loads(shown[-1])["sources"][0]["locator"].startswith("falls.jsonl:")
    assert row["path"] == "default/developer/c1"

    assert f"sub-agent spawn_research_agent as {child} succeeded (3 model calls of its own, " in told
    used = sum(each["facts"]["usage"]["output_tokens"] for each in work if each["kind"] == "model_replied")
    assert used > 0
    assert (last["subagents_usage"]["output_tokens"], ended["facts"]["usage"]["output_tokens"]) == (used, used)
    (work_used,) = (each["work"] for each in budget)
    assert work_used["tokens"] == sum(ended["facts"]["usage"].values())
    assert used_up.startswith(f"of its own budget: 3 of {work_used['steps_max']} steps, ")

    calls = [each["facts"]["name"] for each in work if each["kind"] == "tool_started"]
    assert calls == ["search_evidence", "search_evidence", "select_sources"]
    assert request["messages"][0]["content"][0]["text"] == "What is known of falls?"
    assert [filed, *short] == [work] * 3
    assert missing == missing_in_file
    assert missing.startswith(
        "torpor: no sub-agent 'nobody' of 'c1' here, it never had one, or its journal is not kept"
    )


def test_a_server_does_not_start_with_a_sub_agent_that_may_write(tmp_path: Path) -> None:
    office = Command(tmp_path)
    office.run("init", ".")
    file = tmp_path / "config" / "subagents" / "spawn_research_agent.toml"
    file.write_text(file.read_text().replace("tools = []", 'tools = ["record_payment"]'))

    told = office.complaint("serve", "--port", "0", "--log-level", "error")

    fault = "tools is 'record_payment', expected tools that only read"
    assert told.startswith(f"torpor: config/subagents/spawn_research_agent.toml: {fault}")
    assert fault in office.output("config", "check", code=1)
