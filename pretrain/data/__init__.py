"""Data in three stages, each useful alone: documents, a prepared corpus, batches.

    corpus/       documents as a stream of bounded pieces of text, and the flat arrays of tokens
                  and boundaries that `prepare` writes of them to disk
    tokenizers/   text to ids and back
    batches/      a layout says what batch `step` is; Grain reads

A prepared corpus knows nothing of batch size, length, hosts or masks.  A layout is a pure function
of (corpus, documents, fields, seed, step), so the position of a run is one number, the next step.
Each config section is the keyword arguments of one function:

    corpus = prepare.prepare(**config.corpus)
    layout = phases.build_training(corpus, config.seed, config.optim.steps, config.batches)
    held_out = batches.build(corpus=corpus, split="held_out", **config.batches)
    for step, batch in loader.read_batches(held_out, start=0, rows=slice(...)):
"""
