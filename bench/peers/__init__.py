"""Monque beside the queues that people would take instead: `make bench-peers`.

One run measures all of them on one machine, each in a virtual environment of its own, with servers that are
private to the run. `registry` says who takes part and with which settings, `contest` measures one of them,
`report` writes the tables of the docs.
"""
