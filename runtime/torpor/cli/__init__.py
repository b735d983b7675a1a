"""The ``torpor`` command, one module per verb."""
