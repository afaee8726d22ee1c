"""What one embedded broker knows: its metadata cache and the replicas that it hosts."""
