"""What MLflow's pages say of studies and registered models, as Markdown."""
