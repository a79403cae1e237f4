"""The results of training: promotion to the registry, comparison, question answering, single trials."""
