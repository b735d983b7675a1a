"""Tools: how they are declared, found, called and contained."""
