"""The rules of `memtune cluster check`: each module holds functions from a cluster file to its findings."""
