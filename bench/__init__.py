"""How fast Monque is, measured in pairs: `make bench`, and `make bench-compare` for two checkouts.

`catalogue` is the list of scenarios. `scenario` says what one is, `pairing` how its rounds are measured in
pairs, `report` how they are shown. `draining`, `storing`, `latency`, `footprint` and `injection` measure
Monque, `plain` what PyMongo does on the same server.
"""
