"""Child processes that call handlers; imported with the first worker that needs one."""
