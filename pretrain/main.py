"""Pretrain a model:  python -m pretrain.main --config=configs/xlnet.py"""

import modules
from pretrain import data, job, loop, objectives, report


def main(config, workdir):
    """Prepares the corpus, then trains on it; the same command again resumes."""
    corpus = data.load(**config.corpus)
    backbone = modules.build(**config.model)
    objective = objectives.build(backbone=backbone, **config.objective)
    train = data.build(corpus=corpus, seed=config.seed, **config.batches)
    evals = {
        name: data.build(corpus=corpus, **{**config.batches, **changes})
        for name, changes in config.evals.items()
    }
    with job.opened(config, workdir):
        corpus.tokenizer.save(workdir / "tokenizer")
        state = loop.run(
            config, workdir, objective, train, evals, accept_changes=job.ACCEPT_CHANGES.value
        )
        report.close(config, workdir, int(state.step))


if __name__ == "__main__":
    job.start(main)
