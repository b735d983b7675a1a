"""The composition root: the only module that names a backend; builds, wires, runs, drains.

Everything a process needs is made here from one ``Settings`` and handed down; what is opened here is closed here, in
reverse order: the gateway first, then the actors, then the store. Tests build their own engine from the same pieces
by wrapping the ports.
"""

import gc
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar

import anyio
import msgspec
import structlog

from torpor import local_files
from torpor.actor.creations import Creations
from torpor.actor.parts import ActorParts
from torpor.attachments.inspector import Inspector
from torpor.attachments.tickets import Tickets
from torpor.bus.contract import Bus
from torpor.bus.local import LocalBus
from torpor.clock import Clock, IdSource, RandomIds, SystemClock, chance
from torpor.errors import Unauthenticated
from torpor.gateway.auth import Scope, mint
from torpor.gateway.authenticator import Authenticator
from torpor.gateway.close_reasons import CloseReason
from torpor.gateway.door import open_door
from torpor.gateway.metrics_route import MetricsRoute
from torpor.gateway.options import GatewayOptions
from torpor.gateway.pacing import PacedJournals
from torpor.gateway.server import open_gateway
from torpor.gateway.subscription import Ports
from torpor.gateway.uploads import Uploads
from torpor.home import Home, load_home
from torpor.jobs.contract import JobHandler
from torpor.jobs.operated import OperatedJobs
from torpor.jobs.runner import JobRunner
from torpor.model.contract import Model
from torpor.model.registry import ModelRegistry
from torpor.operations.instruments import Instruments
from torpor.operations.metrics import Statistics
from torpor.operations.metrics_jobs import count_jobs
from torpor.operations.overview import Overview
from torpor.operations.tracing import open_tracing
from torpor.settings import Settings
from torpor.store.contract import Blobs, ErasableBlobs, Store
from torpor.store.job_contract import JobStore
from torpor.store.open_blobs import check_blobs, open_blobs
from torpor.store.sqlite.data_lock import identity
from torpor.store.sqlite.engine import open_sqlite
from torpor.store.uploads import LocalUploads
from torpor.supervisor.directory import StoredDirectory
from torpor.supervisor.drain import Drain
from torpor.supervisor.forks import StoredForks
from torpor.supervisor.memory import ProcessMemory
from torpor.supervisor.registry import Supervisor
from torpor.supervisor.retiring import Retiring
from torpor.supervisor.spawn import Subagents
from torpor.toolhost.calls import Calls
from torpor.toolhost.contract import Toolbox
from torpor.toolhost.mcp.connection import Standing
from torpor.turn.agents import Agents
from torpor.turn.live_context import JOB_KIND as LIVE_JOB
from torpor.turn.live_context import LiveContextJobs
from torpor.turn.places import FairPlaces
from torpor.watchdog.watchdog import Watchdog

_log = structlog.get_logger()
_T = TypeVar("_T")


def _as_it_is(port: _T) -> _T:
    return port


class Wrapping(msgspec.Struct, frozen=True, kw_only=True):
    """What an embedder puts around the ports; nothing by default."""

    store: Callable[[Store], Store] = _as_it_is
    blobs: Callable[[Blobs], Blobs] = _as_it_is
    bus: Callable[[Bus], Bus] = _as_it_is
    model: Callable[[Model], Model] = _as_it_is
    toolbox: Callable[[Toolbox], Toolbox] = _as_it_is
    gateway: Callable[[Ports], Ports] = _as_it_is
    """What sessions talk to."""
    jobs: Callable[[JobStore], JobStore] = _as_it_is
    job_handlers: Mapping[str, JobHandler] = msgspec.field(default_factory=dict)
    """By kind, beside those of the engine."""
    spans: object = None
    """An OpenTelemetry span exporter, instead of the configured one."""


_NOTHING: Final = Wrapping()


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A server that is ready to be talked to."""

    url: str
    development_token: str
    """Empty where the configuration takes no tokens of this machine's own."""
    is_development: bool
    """Nobody's tokens count but this machine's own."""
    supervisor: Supervisor
    drain: Drain
    """Has begun when an operator wants the server to end; the block is to be left then."""


@asynccontextmanager
async def running(
    settings: Settings, *, data: Path, host: str | None = None, port: int | None = None, wrapping: Wrapping = _NOTHING
) -> AsyncIterator[Running]:
    """Serve the home of ``settings`` until the block ends; then drain, close clients, and leave what is not done due.

    Clients stay connected while it drains. They are told that the server restarts if somebody else than the block
    began the drain, and that it stops otherwise.

    Args: data: the data folder, made when it is not there.  host, port: instead of the configured ones; port 0 picks
    one.
    Raises: ConfigError: an agent or the home cannot be used, or the address lacks protection. StoreUnusable: the data
    folder is in use or damaged.
    """
    clock: Clock = SystemClock()
    local_files.make_data_folder(data)
    secret = local_files.keep_secret(data, fresh=os.urandom(local_files.SECRET_BYTES))
    options = msgspec.structs.replace(
        settings.gateway,
        host=settings.gateway.host if host is None else host,
        port=settings.gateway.port if port is None else port,
    )
    async with (
        open_tracing(settings.tracing, secret=secret, environ=os.environ, exporter=wrapping.spans) as tracing,
        open_door(
            secret, gateway=options, auth=settings.auth, home=settings.home, environ=os.environ, clock=clock
        ) as door,
        _engine(
            _Ground(
                settings=settings,
                data=data,
                secret=secret,
                clock=clock,
                ids=RandomIds(),
                environ=os.environ,
                wrapping=wrapping,
                instruments=(instruments := Instruments(clock=clock, tracing=tracing)),
            )
        ) as engine,
    ):
        takes_own = door.is_development or settings.auth.local_tokens
        token = _development_token(data, secret, door.authenticator, clock) if takes_own else ""
        ports = Ports(
            conversations=engine.supervisor,
            directory=engine.directory,
            forks=engine.forks,
            journals=PacedJournals(engine.store, reads_max=settings.gateway.reads_max),
            bundles=engine.blobs,
            bus=engine.bus,
            jobs=engine.jobs,
            server=Overview(
                metrics=instruments.metrics, supervisor=engine.supervisor, drain=engine.drain, mcp=engine.mcp
            ),
            uploads=engine.uploads,
            message_attachments_max=settings.attachments.message_attachments_max,
        )
        async with open_gateway(
            ports=wrapping.gateway(ports),
            authenticator=door.authenticator,
            clock=clock,
            options=options,
            tls=door.tls,
            is_ready=lambda: engine.supervisor.accepts and instruments.can_be_written(),
            metrics=_metrics_route(instruments, settings, authenticator=door.authenticator, options=options),
        ) as gateway:
            instruments.metrics.report("gateway", gateway.statistics)
            address = local_files.ServerAddress(
                url=gateway.url,
                token=token,
                pid=os.getpid(),
                home=str(settings.home),
                certificate=str(door.certificate or ""),
                written_in=identity(data),
            )
            local_files.write_server_address(data, address)
            _log.info("server.ready", url=gateway.url, home=str(settings.home), agents=engine.agents.names())
            try:
                yield Running(
                    url=gateway.url,
                    development_token=token,
                    is_development=door.is_development,
                    supervisor=engine.supervisor,
                    drain=engine.drain,
                )
            finally:
                reason = CloseReason.RESTARTING if engine.drain.began.is_set() else CloseReason.GOING_AWAY
                _log.info("server.stopping")
                await engine.drain.finish()
                with anyio.move_on_after(2 * options.close_deadline_s, shield=True):
                    await gateway.stop(reason)


class _Ground(msgspec.Struct, frozen=True, kw_only=True):
    """What everything is made from."""

    settings: Settings
    data: Path
    secret: bytes
    clock: Clock
    ids: IdSource
    environ: Mapping[str, str]
    wrapping: Wrapping
    instruments: Instruments


class _Engine(msgspec.Struct, frozen=True, kw_only=True):
    """What the gateway is made from."""

    store: Store
    blobs: Blobs
    bus: Bus
    agents: Agents
    supervisor: Supervisor
    directory: StoredDirectory
    forks: StoredForks
    jobs: OperatedJobs
    drain: Drain
    uploads: Uploads
    mcp: Callable[[], tuple[Standing, ...]]


@asynccontextmanager
async def _engine(ground: _Ground) -> AsyncIterator[_Engine]:
    """Everything behind the gateway."""
    settings, clock, instruments = ground.settings, ground.clock, ground.instruments
    files = open_blobs(settings.blobs, folder=ground.data / "blobs", environ=ground.environ)
    await check_blobs(files, settings.blobs)
    blobs = ground.wrapping.blobs(files)
    calls = Calls(clock.monotonic_s, thread_cpu_s=time.thread_time)
    watchdog = Watchdog(settings.watchdog, clock=clock, process_cpu_s=time.process_time, suspects=calls)
    home = _home(ground, blobs=blobs, calls=calls)
    async with open_sqlite(ground.data, options=settings.store, wrap_core=instruments.core) as opened:
        holder = f"{os.getpid()}-{ground.ids.new_id()}"
        job_store = ground.wrapping.jobs(opened.job_store)
        runner = JobRunner(job_store, clock=clock, options=settings.jobs, holder=holder)
        parts = _actor_parts(
            ground,
            home,
            store=instruments.store(ground.wrapping.store(opened)),
            blobs=blobs,
            bus=ground.wrapping.bus(LocalBus()),
            runner=runner,
        )
        served = _served(ground, parts, files=files, holder=holder)
        for kind, handler in {LIVE_JOB: _live_contexts(ground, parts, served), **ground.wrapping.job_handlers}.items():
            runner.serve(kind, handler)
        drain = Drain(
            actors=served.supervisor, jobs=runner, clock=clock, deadline_s=settings.supervisor.stop_deadline_s
        )
        reports: dict[str, Statistics] = {
            "drain": drain.statistics,
            "store": opened.statistics,
            "jobs": runner.statistics,
            "job_store": lambda: count_jobs(job_store, clock=clock),
            "model_places": parts.places.statistics,
            "directory": served.directory.statistics,
            "uploads": served.uploads.statistics,
            "supervisor": served.supervisor.statistics,
            "watchdog": watchdog.statistics,
            "mcp": home.mcp.statistics,
            "model": home.models.statistics,
            "tool_threads": lambda: home.tools.statistics().threads,
            "tool_processes": lambda: home.tools.statistics().processes,
        }
        for room, statistics in reports.items():
            instruments.metrics.report(room, statistics)
        # Jobs speak to conversations, so they end before them.
        async with watchdog.running(), home.running(), served.running(), runner.running():
            gc.collect()
            gc.freeze()  # what was loaded at start stays; later collections need not look at it
            yield _Engine(
                store=parts.store,
                blobs=blobs,
                bus=parts.bus,
                agents=home.agents,
                supervisor=served.supervisor,
                directory=served.directory,
                forks=served.forks,
                jobs=OperatedJobs(job_store, clock=clock, wake=runner.wake, dropped=runner.give_up),
                drain=drain,
                uploads=served.uploads,
                mcp=home.mcp.standings,
            )


def _home(ground: _Ground, *, blobs: Blobs, calls: Calls) -> Home:
    instruments, wrapping = ground.instruments, ground.wrapping
    return load_home(
        ground.settings,
        blobs=blobs,
        clock=ground.clock,
        ids=ground.ids,
        environ=ground.environ,
        wrap_model=lambda model: instruments.model(wrapping.model(model)),
        wrap_toolbox=lambda toolbox: instruments.toolbox(wrapping.toolbox(toolbox)),
        calls=calls,
    )


def _actor_parts(ground: _Ground, home: Home, *, store: Store, blobs: Blobs, bus: Bus, runner: JobRunner) -> ActorParts:
    """What all actors share."""
    settings = ground.settings
    places = FairPlaces(
        settings.turn.model_calls_max,
        per_owner=settings.turn.model_calls_per_owner_max,
        monotonic_s=ground.clock.monotonic_s,
    )
    return ActorParts(
        store=store,
        bus=bus,
        clock=ground.clock,
        ids=ground.ids,
        agents=home.agents,
        places=places,
        steps=settings.steps,
        retry=settings.retry,
        turn=settings.turn,
        compaction=settings.compaction,
        actor=settings.actor,
        surroundings=home.surroundings,
        creations=Creations(limit=settings.gateway.conversations_per_owner_max),
        jobs_added=runner.wake,
        # Also without any: those that a home of before had at work are settled.
        spawns=Subagents(home.subagents, blobs=blobs, options=settings.subagents).of,
        observer=ground.instruments.observer,
    )


class _Served(msgspec.Struct, frozen=True, kw_only=True):
    """Conversations and all that is done with them as a whole."""

    supervisor: Supervisor
    inspector: Inspector
    uploads: Uploads
    directory: StoredDirectory
    forks: StoredForks
    retiring: Retiring

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with (
            self.inspector.running(),
            self.supervisor.running(),
            self.directory.running(),
            self.uploads.sweeping(),
            self.retiring.running(),
        ):
            yield


def _served(ground: _Ground, parts: ActorParts, *, files: ErasableBlobs, holder: str) -> _Served:
    """Args: files: as they are, not as an embedder wrapped them."""
    settings = ground.settings
    supervisor = Supervisor(
        parts,
        holder=holder,
        options=settings.supervisor,
        memory=ProcessMemory(),
        chance=chance,
        on_gone=files.let_go,
    )
    inspector = Inspector(settings.attachments)
    uploads = Uploads(
        LocalUploads(ground.data / "uploads"),
        blobs=files,
        inspector=inspector,
        records=parts.store,
        tickets=Tickets(ground.secret),
        clock=parts.clock,
        options=settings.attachments,
    )
    directory = StoredDirectory(
        served=supervisor,
        store=parts.store,
        blobs=files,
        uploads=uploads,
        bus=parts.bus,
        clock=parts.clock,
        cancel_deadline_s=settings.turn.cancel_grace_s + settings.supervisor.cut_deadline_s,
        observer=parts.observer,
    )
    forks = StoredForks(
        served=supervisor,
        store=parts.store,
        bus=parts.bus,
        clock=parts.clock,
        new_id=parts.ids.new_id,
        creations=parts.creations,
        records_max=settings.supervisor.fork_records_max,
        retry_after_s=settings.supervisor.unavailable_retry_after_s,
        observer=parts.observer,
    )
    retiring = Retiring(
        directory,
        store=parts.store,
        clock=parts.clock,
        options=settings.retention,
        subagents_days=settings.subagents.keep_days,
        may_go_on=lambda: supervisor.accepts,
    )
    return _Served(
        supervisor=supervisor,
        inspector=inspector,
        uploads=uploads,
        directory=directory,
        forks=forks,
        retiring=retiring,
    )


def _live_contexts(ground: _Ground, parts: ActorParts, served: _Served) -> LiveContextJobs:
    settings = ground.settings
    return LiveContextJobs(
        {agent.name: agent.live for agent in parts.agents if agent.live is not None},
        store=parts.store,
        tell=served.supervisor.deliver,
        places=parts.places,
        options=settings.live_context,
        attempts_max=settings.jobs.attempts_max,
        deadline_s=settings.jobs.deadline_s / 2,
    )


def _metrics_route(
    instruments: Instruments, settings: Settings, *, authenticator: Authenticator, options: GatewayOptions
) -> MetricsRoute | None:
    access = settings.metrics.access
    if access == "off":
        return None
    return MetricsRoute(instruments.metrics.page, access=access, authenticator=authenticator, options=options)


def model_registry(settings: Settings, *, clock: Clock, environ: Mapping[str, str]) -> ModelRegistry:
    """Makes the models that the agents of ``settings`` name."""
    return ModelRegistry(home=settings.home, environ=environ, clock=clock, ids=RandomIds(), circuit=settings.circuit)


def _development_token(data: Path, secret: bytes, authenticator: Authenticator, clock: Clock) -> str:
    """For the owner of the data folder: may chat and operate; never expires, and works with this folder's secret
    only."""

    def make() -> str:
        return mint(secret, subject="developer", now_us=clock.now_us(), scopes=(Scope.CHAT, Scope.OPERATOR))

    def is_good(token: str) -> bool:
        try:
            authenticator.authenticate(token, is_local=True)
        except Unauthenticated:
            return False
        return True

    return local_files.keep_development_token(data, make=make, is_good=is_good)
