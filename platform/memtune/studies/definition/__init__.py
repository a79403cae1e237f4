"""Studies as values: what their files may say, and the checks before a trial starts."""
