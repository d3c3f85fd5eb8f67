"""Channel files: created, opened safely, inspected, listed and removed. Knows the layouts of no kind."""
