"""The terminal and standard output: lines for people, JSON for programs, a screen that is drawn in place. Knows no command."""
