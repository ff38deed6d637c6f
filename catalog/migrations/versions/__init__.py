"""One file a revision, applied in order."""
