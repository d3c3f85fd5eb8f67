"""The abstract classes of the handles: publication, subscription and the roles. Knows no kind."""
