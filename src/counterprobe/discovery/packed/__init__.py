"""The paper's packed randomized-color screen: fillers, probes, votes, row selectors."""
