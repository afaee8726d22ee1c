"""Long runs: ``make soak``, a channel under random faults; ``make fuzz``, mutated requests to a broker."""
