"""Studies as jobs on a cluster: pack, submit, follow, list, stop and resume them.

Import from the modules: `job_server` does not import PyTorch, `job_submission` does. Ray is imported on first
use.
"""
