"""What all kinds of channel share: URIs, options, channel files, handles, waiting. Knows no kind."""
