"""Operations with a hand-written derivative or a fast form, one a file."""
