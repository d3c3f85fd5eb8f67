"""The room that every workshop's channels share: files, opening, handles. Knows no kind of channel."""
