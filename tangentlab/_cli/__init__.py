"""The command line, one file per family of commands, and what they share."""
