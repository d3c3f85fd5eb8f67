"""Other libraries' Python interfaces over Penstock's channels, so that a program moves by changing an import."""
