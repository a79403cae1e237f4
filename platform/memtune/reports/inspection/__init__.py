"""Figures and tables of inspected models; they read without colour.

Each function of a figure returns a matplotlib figure, which `reports.figure_files.save_figure` writes.
"""
