"""Everything that knows MongoDB: field names, operators, indexes, commands."""
