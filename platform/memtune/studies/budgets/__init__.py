"""When a study's run ends before its trials do: budgets, and what is spent of them."""
