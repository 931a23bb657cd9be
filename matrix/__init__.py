"""The compatibility matrix: the tests on several Pythons, servers, and versions of what Monque needs.

`python -m matrix` runs it and prints a table; `rows` says what is in it, `environments` installs a row, `run`
runs the tests in it.
"""
