"""The command line: each command is a thin call that prints what Python would return."""
