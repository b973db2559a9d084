"""Finds keys of recipes by the names that other libraries have for them."""

from collections.abc import Callable

# As of transformers, PyTorch Lightning, levanter and MaxText.  These mean the same number, and may
# stand for our key.
SYNONYMS = {
    "epochs": "num_train_epochs num_epochs max_epochs",
    "batches.B": "batch_size train_batch_size global_batch_size",
    "optim.lr": "learning_rate peak_lr",
    "optim.steps": "max_steps num_steps train_steps total_steps",
    "optim.warmup": "warmup_steps num_warmup_steps",
    "optim.clip": "max_grad_norm grad_clip clip_norm",
    "optim.b1": "beta1 adam_beta1",
    "optim.b2": "beta2 adam_beta2",
    "optim.eps": "adam_epsilon",
    "train.parts": "grad_accum gradient_accumulation gradient_accumulation_steps "
    "accumulate_grad_batches",
    "train.average": "ema ema_decay",
    "train.stop_after": "early_stopping early_stopping_patience",
    "train.log_every": "logging_steps",
    "train.eval_every": "eval_steps",
    "train.save_every": "save_steps",
    "train.keep": "save_total_limit max_to_keep",
}

# These hold the value in another form, or mean nearly the same: whoever writes them is told ours.
RELATED = {
    "init": "model_name_or_path init_from init_checkpoint checkpoint pretrained",
    "num_seeds": "seeds",
    "corpus.source": "dataset dataset_name data_path train_file data data.path data.source "
    "data.train data.dataset corpus.path",
    "corpus.tokens.name": "tokenizer tokenizer_name",
    "corpus.tokens.V": "vocab_size vocabulary_size",
    "data.train": "train_file dataset data.path data.source corpus.source",
    "data.dev": "validation_file eval_file valid",
    "batches.B": "per_device_train_batch_size",
    "batches.L": "seq_len seq_length sequence_length max_seq_length max_length block_size",
    "batches.eval_B": "eval_batch_size per_device_eval_batch_size",
    "model.D": "d_model hidden_size n_embd embed_dim width",
    "model.H": "n_heads num_heads num_attention_heads n_head",
    "model.K": "head_dim d_head",
    "model.F": "d_ff ffn_dim mlp_dim intermediate_size",
    "model.N": "n_layers num_layers num_hidden_layers n_layer depth",
    "model.L": "max_position_embeddings n_positions n_ctx",
    "model.M": "mem_len",
    "model.dropout": "dropout_rate hidden_dropout_prob resid_pdrop",
    "model.attention_dropout": "attention_probs_dropout_prob attn_pdrop attn_dropout",
    "model.dtype": "bf16 fp16 precision mixed_precision compute_dtype",
    "execution.remat": "gradient_checkpointing activation_checkpointing remat_policy recompute",
    "objective.mask_prob": "mlm_probability masked_lm_prob",
    "optim.name": "optimizer",
    "optim.lr": "base_lr",
    "optim.steps": "num_train_steps max_train_steps",
    "optim.warmup": "warmup_ratio warmup_epochs",
    "optim.decay": "lr_schedule lr_scheduler lr_scheduler_type schedule",
    "optim.clip": "gradient_clip gradient_clip_val",
    "optim.weight_decay": "wd",
    "train.parts": "microbatches",
    "train.average": "ema_rate",
    "train.stop_after": "patience",
    "train.max_skips": "max_nan_steps nan_tolerance",
    "train.best": "metric_for_best_model monitor",
    "train.log_every": "log_steps log_interval",
    "train.eval_every": "eval_interval steps_per_eval val_check_interval",
    "train.save_every": "save_interval checkpoint_every",
    "train.trackers": "report_to logger loggers tracker",
    "profile": "profiler profile_steps",
}
USUAL_NAMES = {
    key: {*SYNONYMS.get(key, "").split(), *RELATED.get(key, "").split()}
    for key in SYNONYMS | RELATED
}


def is_synonym(name: str) -> bool:
    """Tells whether this name, whatever section it names, means a key of ours elsewhere."""
    return any(name.rpartition(".")[2] in others.split() for others in SYNONYMS.values())


def translate(name: str, has_key: Callable[[str], bool]) -> str:
    """Returns the key of a recipe that this name means, whatever section it names; "": none."""
    last = name.rpartition(".")[2]
    keys = [key for key, others in SYNONYMS.items() if last in others.split() and has_key(key)]
    return keys[0] if len(keys) == 1 and not has_key(name) else ""


def find_keys(name: str, has_key: Callable[[str], bool]) -> list[str]:
    """Lists the keys that another library calls so, of those that a recipe has."""
    return [key for key, names in USUAL_NAMES.items() if name.lower() in names and has_key(key)]
