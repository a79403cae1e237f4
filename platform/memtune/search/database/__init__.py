"""The study database of Optuna: connections, journals, outages, and the lease of a driver."""
