"""Jobs that begin where a pretraining run ended.

A task restores the backbone of a workdir with `pretrain.checkpoint.load_backbone`, puts its own
head beside it, and trains through `pretrain.loop.run`: the same loop, the same checkpoints.
"""
