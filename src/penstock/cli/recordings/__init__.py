"""Commands on archives, and on files that are made of them or that they are made of."""
