"""The kinds of loads, a file for each: what one worker does between its start and its end."""
