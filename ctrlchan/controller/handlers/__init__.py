"""What the controller does about each event."""
