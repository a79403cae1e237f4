"""`memtune compare`, `evaluate`, `inspect` and others: the results of trainings, and questions to models."""
