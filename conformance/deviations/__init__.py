"""The standard deviation of each element, along the graph of the bound, and what follows for a whole output."""
