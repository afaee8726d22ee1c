"""The settings of a controller, and where they come from."""
