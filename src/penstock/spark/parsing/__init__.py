"""Texts of SQL: the names in them, the tables that they read and define, and one dialect as another. Runs nothing."""
