"""Probes: rows with known answers, which ask what a memory can hold."""
