"""Every number at ``/metrics``: its name, its kind, its labels and what it says.

Above: ``metrics``, which keeps what is observed and asks the rooms for the rest; docs/operators.md, whose table is
compared with this one. Names follow the conventions of Prometheus. Labels come from what the home and the code name,
never from what people or models say.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import msgspec


class Kind(Enum):
    COUNTER = "counter"
    """Since the start of the process."""
    GAUGE = "gauge"
    """Now."""
    HISTOGRAM = "histogram"
    """Of whole observations since the start."""


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One family of numbers."""

    name: str
    """As it is scraped; histograms add ``_bucket``, ``_sum`` and ``_count`` to it."""
    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    """Of a histogram, upper bounds that rise; the last one, infinity, is not named."""


class Number(msgspec.Struct, frozen=True):
    """One field of a room's statistics."""

    kind: Kind
    about: str
    labels: tuple[str, ...] = ()
    """Of a field that is a mapping: what its keys are."""
    name: str = ""
    """Instead of the field's."""
    total: str = ""
    """Of a histogram, whose field holds buckets with ``at_most_s`` and ``count``: the field with its sum."""


class Room(msgspec.Struct, frozen=True, kw_only=True):
    """A frozen struct of numbers that a part of the engine reports."""

    struct: str
    """Its module in the engine and its name; a test holds its fields against ``numbers``."""
    numbers: Mapping[str, Number]

    @property
    def totals(self) -> frozenset[str]:
        """Fields that are a part of a histogram."""
        return frozenset(number.total for number in self.numbers.values() if number.total)


def metric_of(room: str, field: str, number: Number) -> Metric:
    """The family that a field of a room becomes."""
    field = number.name or field
    stem = f"{field.removesuffix('_s')}_seconds" if field.endswith("_s") else field
    ending = "_total" if number.kind is Kind.COUNTER else ""
    return Metric(name=f"torpor_{room}_{stem}{ending}", kind=number.kind, about=number.about, labels=number.labels)


def _counter(name: str, about: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, about=about, labels=labels)


def _histogram(name: str, about: str, *labels: str, buckets: tuple[float, ...]) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, about=about, labels=labels, buckets=buckets)


_WAITS_S: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Of what people wait for."""
_FLUSHES_S: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Of what a disk is waited for."""
_GROUPS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)

MESSAGES: Final = _counter("torpor_messages_total", "Messages of users that became durable.", "agent")
TURNS_STARTED: Final = _counter("torpor_turns_started_total", "Turns that began.", "agent")
TURNS_ENDED: Final = _counter(
    "torpor_turns_ended_total",
    "Turns that ended, by `finished`, `cancelled`, `failed` or `refused`.",
    "agent",
    "outcome",
)
TURN_FAILURES: Final = _counter("torpor_turn_failures_total", "Turns that failed, by why.", "code")
TURN_SECONDS: Final = _histogram(
    "torpor_turn_seconds",
    "From a turn's beginning to its end; of turns that this process saw whole.",
    "agent",
    buckets=_WAITS_S,
)
MODEL_CALLS: Final = _counter(
    "torpor_model_calls_total",
    "Calls that ended, by `replied`, `cancelled` or an error's code; summaries and live contexts included.",
    "model",
    "outcome",
)
MODEL_SECONDS: Final = _histogram(
    "torpor_model_seconds",
    "Of each of them, from asking to its end; waiting for a free place, for people or before a retry is not in it.",
    "model",
    buckets=_WAITS_S,
)
FIRST_DELTA_SECONDS: Final = _histogram(
    "torpor_model_first_delta_seconds", "From asking to the first piece of text.", "model", buckets=_WAITS_S
)
TOKENS: Final = _counter(
    "torpor_model_tokens_total",
    "Tokens as hosts counted them, by `input`, `cache_read`, `cache_write` or `output`; the four add up.",
    "model",
    "kind",
)
TOOL_CALLS: Final = _counter(
    "torpor_tool_calls_total",
    "Calls whose result became durable, those that were never run included; tools nobody knows are `unknown`, and so "
    "are those beyond 100 that one MCP server came with.",
    "tool",
    "outcome",
)
TOOL_SECONDS: Final = _histogram("torpor_tool_seconds", "Of each run of a tool.", "tool", buckets=_WAITS_S)
COMPACTIONS: Final = _counter(
    "torpor_compactions_total", "Folds of older turns, by how they were done or by why not.", "outcome"
)
COMPACTION_PAUSES: Final = _counter(
    "torpor_compaction_pauses_total", "Times that a summariser is left alone for a while, after failures in a row."
)
LIVE_CONTEXTS: Final = _counter("torpor_live_contexts_total", "Live contexts, by `replaced` or by why not.", "outcome")
ATTACHMENTS_WITHDRAWN: Final = _counter(
    "torpor_attachments_withdrawn_total",
    "Attachments that models are not shown any more, by `missing`, `damaged`, `refused` (by the host) or `room`.",
    "reason",
)
SUBAGENTS_FINISHED: Final = _counter(
    "torpor_subagents_finished_total",
    "Sub-agents that ended, each once, by `answered` or by why not; `erased` are those that ended with a conversation.",
    "subagent",
    "code",
)
SUBAGENT_TOKENS: Final = _counter(
    "torpor_subagents_tokens_total",
    "Tokens of those that worked for a conversation itself, with those below them, by kind as for models; they are "
    "among those of the models.",
    "subagent",
    "kind",
)
COMMITS: Final = _counter("torpor_commits_total", "Appends, by `committed` or an error's code.", "outcome")
COMMIT_RECORDS: Final = _counter("torpor_commit_records_total", "Records in those that were committed.")
COMMIT_SECONDS: Final = _histogram(
    "torpor_commit_seconds", "From handing an append over to hearing of its end.", buckets=_FLUSHES_S
)
FLUSH_SECONDS: Final = _histogram(
    "torpor_store_flush_seconds", "Of each group of writes that shared a flush.", buckets=_FLUSHES_S
)
FLUSH_REQUESTS: Final = _histogram("torpor_store_flush_requests", "Writes in each group.", buckets=_GROUPS)
UNREAD_ROOMS: Final = _counter("torpor_unread_rooms_total", "Times a part could not tell its numbers.", "room")

OBSERVED: Final = (
    MESSAGES,
    TURNS_STARTED,
    TURNS_ENDED,
    TURN_FAILURES,
    TURN_SECONDS,
    MODEL_CALLS,
    MODEL_SECONDS,
    FIRST_DELTA_SECONDS,
    TOKENS,
    TOOL_CALLS,
    TOOL_SECONDS,
    COMPACTIONS,
    COMPACTION_PAUSES,
    LIVE_CONTEXTS,
    ATTACHMENTS_WITHDRAWN,
    SUBAGENTS_FINISHED,
    SUBAGENT_TOKENS,
    COMMITS,
    COMMIT_RECORDS,
    COMMIT_SECONDS,
    FLUSH_SECONDS,
    FLUSH_REQUESTS,
    UNREAD_ROOMS,
)
"""What is counted where it happens."""

ROOMS: Final[Mapping[str, Room]] = {
    "directory": Room(
        struct="supervisor.directory.DirectoryStatistics",
        numbers={
            "erasing": Number(Kind.GAUGE, "Conversations that are being taken away."),
            "erased": Number(Kind.COUNTER, "Conversations taken away, by why.", ("reason",)),
            "subagents": Number(Kind.COUNTER, "Journals of sub-agents taken away before their conversations."),
            "blobs": Number(Kind.COUNTER, "Blobs taken away with conversations, attachments among them."),
            "failures": Number(Kind.COUNTER, "Conversations that could not be taken away then."),
        },
    ),
    "drain": Room(
        struct="supervisor.drain.DrainStatistics",
        numbers={
            "draining": Number(Kind.GAUGE, "1 once the server drains, 0 before."),
            "turns_left": Number(Kind.GAUGE, "Turns that a drain waits for."),
            "cut_off": Number(Kind.COUNTER, "Turns that a drain cut off at its deadline."),
        },
    ),
    "events": Room(
        struct="operations.metrics_turns.EventStatistics",
        numbers={"committed": Number(Kind.COUNTER, "Events that became durable.")},
    ),
    "gateway": Room(
        struct="gateway.server.GatewayStatistics",
        numbers={
            "connections": Number(Kind.GAUGE, "Open connections."),
            "waiting_bytes": Number(Kind.GAUGE, "Waiting to be sent, in all outboxes together."),
            "opened": Number(Kind.COUNTER, "Connections that were opened."),
            "refused": Number(
                Kind.COUNTER,
                "Handshakes answered with an HTTP error, and connections that were cut at once since there was no room "
                "for them.",
            ),
            "cut": Number(Kind.COUNTER, "Connections cut because a client did not take a frame in time."),
            "dropped": Number(Kind.COUNTER, "Deltas and progress frames for which there was no room."),
            "errors": Number(Kind.COUNTER, "Error frames to clients, by code; see docs/protocol.md.", ("code",)),
            "closed": Number(
                Kind.COUNTER, "Connections that the gateway closed, by why; those of a stop not.", ("reason",)
            ),
            "joined": Number(
                Kind.COUNTER, "Subscriptions that began, by `resumed` (what was missed came) or `reload`.", ("how",)
            ),
            "downloads": Number(Kind.GAUGE, "Files that are fetched by their links."),
            "downloads_refused": Number(Kind.COUNTER, "Files that were asked for when too many were fetched already."),
            "downloads_ended": Number(
                Kind.COUNTER,
                "Files that were fetched by their links, by `done`, `left` (the client did), `stalled` (it read too "
                "slowly, or not at all), `damaged`, `unreadable` or `stopped` (with the server).",
                ("how",),
            ),
        },
    ),
    "jobs": Room(
        struct="jobs.runner.JobStatistics",
        numbers={
            "running": Number(Kind.GAUGE, "Background jobs under way in this process."),
            "finished": Number(Kind.COUNTER, "Background jobs done."),
            "failed": Number(Kind.COUNTER, "Attempts that will be repeated."),
            "buried": Number(Kind.COUNTER, "Background jobs given up."),
            "cut_off": Number(Kind.COUNTER, "Attempts that the end of the server cut off."),
        },
    ),
    "job_store": Room(
        struct="operations.metrics_jobs.JobStoreStatistics",
        numbers={
            "waiting": Number(Kind.GAUGE, "Background jobs waiting, due or not."),
            "due": Number(Kind.GAUGE, "Background jobs waiting that are due."),
            "running": Number(Kind.GAUGE, "Background jobs that somebody claimed."),
            "dead": Number(Kind.GAUGE, "Background jobs given up and kept for an operator."),
            "lag_s": Number(Kind.GAUGE, "For how long the oldest job has been due."),
        },
    ),
    "store": Room(
        struct="store.sqlite.engine.StoreStatistics",
        numbers={
            "waiting": Number(Kind.GAUGE, "Writes handed over and not answered yet."),
            "database_bytes": Number(Kind.GAUGE, "Size of the database file."),
            "log_bytes": Number(Kind.GAUGE, "Size of its write-ahead log."),
        },
    ),
    "mcp": Room(
        struct="toolhost.mcp.servers.McpStatistics",
        numbers={
            "connections": Number(Kind.GAUGE, "Connections to MCP servers, by how they stand.", ("state",)),
            "up": Number(Kind.GAUGE, "Connections that are up.", ("server",)),
            "tools": Number(Kind.GAUGE, "Tools that it offers now, over all connections to it.", ("server",)),
            "rejected": Number(Kind.GAUGE, "Tools that are left out, as what cannot be offered.", ("server",)),
            "lost": Number(Kind.COUNTER, "Times that it was lost, or could not be reached.", ("server",)),
            "calls": Number(Kind.GAUGE, "Calls under way."),
        },
    ),
    "model": Room(
        struct="model.registry.ModelStatistics",
        numbers={
            "circuit": Number(
                Kind.GAUGE, "1 for the state that the circuit of a host is in, 0 for the others.", ("host", "state")
            ),
        },
    ),
    "model_places": Room(
        struct="turn.places.PlacesStatistics",
        numbers={
            "places": Number(Kind.GAUGE, "Model calls that may be under way at once."),
            "taken": Number(Kind.GAUGE, "Model calls under way."),
            "waiting": Number(Kind.GAUGE, "Model calls that wait for a place."),
            "owners": Number(Kind.GAUGE, "Owners that have a model call under way."),
            "owners_waiting": Number(Kind.GAUGE, "Owners that have a model call waiting."),
            "owner_taken_most": Number(Kind.GAUGE, "Model calls under way of the owner who has most."),
            "owner_waiting_most": Number(Kind.GAUGE, "Model calls waiting of the owner who has most."),
            "grants": Number(Kind.COUNTER, "Places given to model calls."),
            "waited_s": Number(Kind.COUNTER, "Time that model calls waited for a place, together."),
        },
    ),
    "tool_threads": Room(
        struct="toolhost.workers.WorkersStatistics",
        numbers={
            "limit": Number(Kind.GAUGE, "Threads that tools may have."),
            "busy": Number(Kind.GAUGE, "Threads in which a tool runs."),
            "given_up": Number(Kind.GAUGE, "Threads in which a tool runs whose call was given up."),
            "waiting": Number(Kind.GAUGE, "Calls that wait for a thread."),
        },
    ),
    "tool_processes": Room(
        struct="toolhost.processes.ProcessesStatistics",
        numbers={
            "limit": Number(Kind.GAUGE, "Processes that tools may have."),
            "busy": Number(Kind.GAUGE, "Processes in which a tool runs."),
            "idle": Number(Kind.GAUGE, "Processes that wait for a call."),
            "waiting": Number(Kind.GAUGE, "Calls that wait for a process."),
            "started": Number(Kind.COUNTER, "Processes started."),
            "killed": Number(Kind.COUNTER, "Processes killed because their call was given up."),
            "crashed": Number(Kind.COUNTER, "Processes that ended by themselves."),
        },
    ),
    "supervisor": Room(
        struct="supervisor.statistics.SupervisorStatistics",
        numbers={
            "live": Number(Kind.GAUGE, "Actors, by what they are doing.", ("state",)),
            "resting": Number(Kind.GAUGE, "Actors with nothing to do and nothing to read."),
            "waiting_commands": Number(Kind.GAUGE, "Commands in mailboxes, or for the next incarnation."),
            "waiting_thaws": Number(Kind.GAUGE, "Actors that wait for their turn to thaw."),
            "memory_bytes": Number(Kind.GAUGE, "Memory of the process, as it was measured last."),
            "thaws": Number(Kind.COUNTER, "Actors started."),
            "crashes": Number(Kind.COUNTER, "Actors that crashed."),
            "restarts": Number(Kind.COUNTER, "Actors started again after a crash."),
            "quarantines": Number(Kind.COUNTER, "Conversations quarantined."),
            "releases": Number(Kind.COUNTER, "Conversations released from quarantine."),
            "hibernations": Number(Kind.COUNTER, "Actors put to sleep, by why.", ("reason",)),
            "refused": Number(Kind.COUNTER, "Commands for which no actor was started, by why.", ("reason",)),
        },
    ),
    "subagents": Room(
        struct="operations.metrics_subagents.SubagentStatistics",
        numbers={"at_work": Number(Kind.GAUGE, "Sub-agents that are at work.")},
    ),
    "uploads": Room(
        struct="gateway.upload_numbers.UploadStatistics",
        numbers={
            "begun": Number(Kind.COUNTER, "Uploads of files begun."),
            "finished": Number(Kind.COUNTER, "Uploads finished: what a message may name."),
            "refused": Number(Kind.COUNTER, "Files not taken, by an error's code; see docs/protocol.md.", ("code",)),
            "stored_bytes": Number(Kind.COUNTER, "Bytes of finished uploads, as models are sent them."),
            "collected": Number(Kind.COUNTER, "Files taken away since no message came to name them."),
        },
    ),
    "watchdog": Room(
        struct="watchdog.statistics.WatchdogStatistics",
        numbers={
            "beats": Number(Kind.COUNTER, "Looks at how late the event loop is."),
            "last_lag_s": Number(Kind.GAUGE, "How late it was at the last look."),
            "lag_max_s": Number(Kind.GAUGE, "How late it was at most, since the start."),
            "buckets": Number(Kind.HISTOGRAM, "How late the event loop was.", name="lag_s", total="lag_sum_s"),
            "stalls": Number(Kind.COUNTER, "Times that it was late by `watchdog.lag_warn_s` or more."),
            "stalled_s": Number(Kind.COUNTER, "Those times together."),
            "suspensions": Number(Kind.COUNTER, "Times that the whole process did not run for as long."),
        },
    ),
}
"""What the parts of the engine report when they are asked, by the name that their numbers carry. A field that is not
here is shown all the same, as a gauge without a word."""


def every_metric() -> tuple[Metric, ...]:
    """All of the engine's own, in order of their names."""
    reported = (
        metric_of(name, field, number) for name, room in ROOMS.items() for field, number in room.numbers.items()
    )
    return tuple(sorted((*OBSERVED, *reported), key=lambda metric: metric.name))
