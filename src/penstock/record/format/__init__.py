"""The files of recordings: their layout, their catalog, their places. Opens no channel."""
