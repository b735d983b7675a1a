"""What the model of this host says, and how the host goes wrong: written by a test, in Python or in a file."""
