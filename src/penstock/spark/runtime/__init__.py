"""Who runs a query: a JVM or Sail's server, its Python workers, and what they say where they fail. Knows nothing of recordings."""
