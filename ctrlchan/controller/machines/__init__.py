"""The controller's columns of the cluster, and the state machines over them."""
