"""Trials on Ray: Tune adapters, the trial actor, the local instance, clusters and jobs.

The only package that imports Ray.
"""
