"""Structure found once and reused: what was found, what stands before its use, and its files."""
