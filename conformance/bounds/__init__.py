"""The bound of each element of each output: elementary rules, softmax, and the graph of attention."""
