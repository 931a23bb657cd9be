"""A real MongoDB with no set-up: started when needed, shared by processes, ended with the last of them.

    async with EmbeddedMongo() as server:
        client = AsyncMongoClient(server.uri)

The server is a one-node replica set, so transactions and change streams work. It listens on a Unix socket
that only this user can open. A small process of its own (`supervisor.py`) owns it, and every
`EmbeddedMongo` keeps a connection to that supervisor: as long as there is one, the server runs.

The connection is closed when a process ends, however it ends, and it is not inherited by programs that
the process starts. A child made by `os.fork` (or `multiprocessing` with "fork") does inherit it, and so
keeps the server running for as long as it lives itself.
"""

from monque.embedded.server import EmbeddedMongo, EmbeddedMongoError, find_mongod

__all__ = ["EmbeddedMongo", "EmbeddedMongoError", "find_mongod"]

# Tracebacks and logs name a class by its module: say where users import it from.
EmbeddedMongo.__module__ = EmbeddedMongoError.__module__ = find_mongod.__module__ = __name__
