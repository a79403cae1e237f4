"""Optimisers, learning rate schedules, the update step and the kernels it runs on."""
