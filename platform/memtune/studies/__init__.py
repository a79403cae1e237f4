"""Studies as values, and the driver that runs them. Imports neither Ray nor MLflow."""
