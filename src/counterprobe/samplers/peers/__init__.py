"""Rules of others, one file per idea, with their source, what they do and what to beware of."""
