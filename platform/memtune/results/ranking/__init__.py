"""The order of a study's configurations, and whether their differences are real."""
