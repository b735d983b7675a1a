"""Which actors live, who may write, and when they sleep."""
