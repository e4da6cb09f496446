"""What several samplers share: the loops of a rule, its schedules and its graphs."""
