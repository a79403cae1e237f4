"""When a study's run ends before its trials do: budgets, what is spent of them, and stop signals."""
