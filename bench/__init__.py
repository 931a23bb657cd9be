"""How fast Monque is, with plain PyMongo on the same server beside it: `make bench`."""
