"""Skills of a home: folders with a SKILL.md in the public Agent Skills format, read leniently and kept current."""
