"""Jobs that begin where a pretraining run ended.

A job begins with the model and the tokenizer of a workdir (`finetune.starting_point`), puts a
task's head beside its backbone (`finetune.tasks`), restores the weights (`finetune.initialize`),
and trains through `pretrain.training.loop.run`: the same loop, the same checkpoints.
"""
