"""How long a job that failed rests. Pure."""

import hashlib
from typing import Final

from torpor.jobs.options import JobOptions
from torpor.store.job_contract import StoredJob

_SPREAD: Final = 0.25
"""A pause is this part shorter or longer, at most, so that what failed together is not tried again together."""
_DOUBLINGS_MAX: Final = 32
_BYTES: Final = 4


def pause_s(job: StoredJob, options: JobOptions) -> float:
    """Before the attempt after ``job.attempts``; the same for the same job and attempt."""
    doublings = min(max(0, job.attempts - 1), _DOUBLINGS_MAX)
    return min(options.backoff_s * 2.0**doublings, options.backoff_max_s) * _jitter(job)


def longest_pause_s(options: JobOptions) -> float:
    """That ``pause_s`` may come to."""
    return max(options.backoff_max_s, options.backoff_s) * (1 + _SPREAD)


def _jitter(job: StoredJob) -> float:
    name = f"{job.key.path}/{job.id}/{job.attempts}".encode(errors="replace")
    share = int.from_bytes(hashlib.sha256(name).digest()[:_BYTES], "big") / 256**_BYTES
    return 1 + _SPREAD * (2 * share - 1)
