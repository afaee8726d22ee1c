"""The socket server of the embedded broker: frames in, responses out."""
