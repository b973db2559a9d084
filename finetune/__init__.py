"""Jobs that begin where a pretraining run ended.

A job restores the backbone of a workdir (`finetune.initialize`), puts a task's head beside it
(`finetune.tasks`), and trains through `pretrain.training.loop.run`: the same loop, the same
checkpoints.
"""
