"""``frames``: encodes a snapshot, or a diff, to the frames that brokers receive."""
