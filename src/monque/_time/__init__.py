"""The server's clock, cron expressions, backoff, and waiting with a time limit."""
