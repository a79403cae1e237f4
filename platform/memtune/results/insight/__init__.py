"""What a study has found, as typed values: its trials, its ranking, its Pareto front and its progress."""
