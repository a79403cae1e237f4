-- The databases next to "mlflow": MLflow's users, and the proposals of studies.
CREATE DATABASE mlflow_auth OWNER memtune;
CREATE DATABASE optuna OWNER memtune;
