"""A reader for whom a sentence is an angle in degrees."""

import numpy as np


class Angles:
    name = "angles"

    def __init__(self, averages=True, offset=0.0):
        self.averages, self.offset = averages, offset

    def list_tokens(self, texts):
        return [[text] for text in texts]

    def read(self, texts, left_out):
        angles = np.deg2rad([float(text) for text in texts])
        vectors_ND = np.stack([np.cos(angles), np.sin(angles)], 1) + self.offset
        kept_KN = np.array([[text not in x for text in texts] for x in left_out])
        return kept_KN[..., None] * vectors_ND


def write_task(folder, **files):
    """Writes pairs as SemEval does, whose scores fall from line to line."""
    folder.mkdir()
    for name, text in files.items():
        (folder / f"STS.input.{name}.txt").write_text(text)
        scores = "".join(f"{5 - i}\n" for i in range(text.count("\n")))
        (folder / f"STS.gs.{name}.txt").write_text(scores)
