"""What does a kind of job, and what it may answer with.

Above: whoever builds the process and gives the runner its handlers. Below: the runner, which knows of a job its kind,
its times and its attempts, and nothing of what it is for.
"""

from typing import Protocol, runtime_checkable

from torpor.store.job_contract import StoredJob


class JobHandler(Protocol):
    """Does the jobs of one kind."""

    async def run(self, job: StoredJob, *, attempt: int) -> None:
        """Do it; returning means that it is done for good.

        It may have been done before, whole or in part: a process can be killed after the effect and before the store
        hears of it. So an effect must be idempotent, under a key made of the conversation and ``job.id``, which stay
        the same over all attempts; ``attempt``, from 1, is for logs and for choosing a cheaper way.

        Cancellation: the deadline of the kind passed, or the process stops; to be let through.
        Raises: JobFailed: try again, after the usual pause or the one it names. JobImpossible: never try again.
        Anything else is a failure like the first, and logged as a bug. The texts of errors are logged, and shown to
        operators: no content of conversations in them.
        """
        ...


@runtime_checkable
class GivesUp(Protocol):
    """A handler that wants to hear of a job that will never be run again, though it never heard of a failure."""

    async def given_up(self, job: StoredJob, why: str) -> None:
        """``job`` is buried unrun, since its process was killed in each of its attempts, or an operator dropped it.

        Idempotent like ``run``, and told once at most; whatever it raises is logged and changes nothing.
        """
        ...
