"""This machine: facts about it, and the commands info and doctor."""
