"""The verbs of the front door: publish, subscribe, join, wait, and the lists of channels. Knows no kind."""
