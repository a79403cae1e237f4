"""Probes: rows with known answers, which ask what a memory can hold."""

from memtune.corpora.probes.probe_corpora import (
    PREFIX,
    PROBES,
    SETS,
    TESTED_LENGTHS,
    Probe,
    check_settings,
    import_probe,
    name_corpus,
    open_or_draw_corpus,
    parse_corpus_name,
    select_probes,
)
from memtune.corpora.probes.probe_rows import UNASKED
