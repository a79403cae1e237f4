"""What models that have learnt make of things: read only, nothing is trained or recorded."""

from memtune.analysis.overlap import Region, overlap

__all__ = ["Region", "overlap"]
