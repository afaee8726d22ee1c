"""A channel under random faults for long: ``make soak``. Nothing here is collected by pytest."""
