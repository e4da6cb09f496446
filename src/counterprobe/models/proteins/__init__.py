"""Models of proteins: sequences of antibodies, and sequences that fold into a backbone."""
