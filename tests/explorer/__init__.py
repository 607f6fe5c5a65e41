"""The explorer: numbers, page, server, command."""
