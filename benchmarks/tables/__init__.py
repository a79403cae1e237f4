"""Studies replayed on recorded learning curves, in simulated time."""
