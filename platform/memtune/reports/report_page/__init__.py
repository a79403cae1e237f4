"""The figures of studies and corpora: charts as SVG, PNG and PDF, and reports as HTML files.

The charts are Vega-Lite specifications, made with Altair; vl-convert draws the files and holds the JavaScript
of Vega. Import from the modules where something is drawn: Altair and vl-convert take a second.
"""
