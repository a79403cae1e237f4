"""`memtune corpus ...`: importing, looking at and changing corpora."""
