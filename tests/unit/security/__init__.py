"""What both sides of a secured connection need: TLS contexts, key stores, JAAS, handshakes."""
