"""Text formats: one system's way of framing texts a file, each a `FORMAT` of `TextFormat`.

A recipe names one, `text_format="bert"`; a name with a dot is a module of your own.
"""
