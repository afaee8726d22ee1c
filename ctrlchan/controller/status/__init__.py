"""The controller as others see it: status, web page, metrics."""
