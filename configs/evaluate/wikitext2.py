"""Evaluates on WikiText-2 as GPT-2's paper does (Radford et al. 2019, section 3.1 and table 3).

    python -m pretrain.evaluate --workdir=runs/gpt2-124m --config=configs/evaluate/wikitext2.py
        --config.corpus.source='text:wikitext-2/wiki.test.tokens'

Without having seen its training text, the published weights reach a `word_perplexity` of 29.41
(124m), 22.76 (355m), 19.93 (774m) and 18.34 (1558m).  The loss of all tokens is divided by the
words of the file as published, 245,569 in `wiki.test.tokens` with an <eos> for each line's end,
whatever the vocabulary; and the file's spaced-out tokens are first put back into running text, by
rules that can be undone.  How much text a token may look back on the paper does not say: here each
row repeats half of the row before it, so that every token, but those that open the file, is told
from at least L / 2 others.  --config.batches.overlap=0 lays the rows end to end: half the time,
and a higher perplexity.  One token more than the file has, its <eod>, is predicted.
"""

from ml_collections import ConfigDict, config_dict


def get_config() -> ConfigDict:
    """Returns the recipe; without L it takes rows as long as those the run was trained on."""
    config = ConfigDict()
    config.corpus = dict(
        source="text:wikitext-2/wiki.test.tokens",
        documents="file",
        sentences="whole",
        detokenise="wikitext",
        cache="data",
    )
    config.batches = dict(name="windows", B=16, L=config_dict.placeholder(int))
    config.batches.overlap = config.batches.get_ref("L") // 2
    return config
