"""The driver of a study, and in `definition` the study as a value. Imports neither Ray nor MLflow."""
