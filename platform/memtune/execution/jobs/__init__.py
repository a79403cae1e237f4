"""Studies as jobs on a cluster: packed, submitted, followed, listed, stopped and taken up again.

Ray is loaded on first use.
"""

from memtune.execution.jobs.server import Job, JobServer, server_address
from memtune.execution.jobs.submission import Submission, prepare_submission, resumption, submit

__all__ = [
    "Job",
    "JobServer",
    "Submission",
    "prepare_submission",
    "resumption",
    "server_address",
    "submit",
]
