"""Studies as jobs on a cluster: packed, submitted, followed, listed, stopped and taken up again.

Import from the modules: to look at jobs (`server`) needs no torch, to prepare one (`submission`) does. Ray is
loaded on first use.
"""
