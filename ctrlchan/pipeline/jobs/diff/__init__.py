"""``diff``: the control requests that bring brokers from one snapshot to another."""
