"""Losses: of large vocabularies, in pieces; of vectors and rankings; and penalties of states."""
