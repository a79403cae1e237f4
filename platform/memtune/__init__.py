"""memtune: search, on one machine or many, over language models with memory."""
