"""Diagnoses gradients: where they vanish and explode, over time and over layers.

    python -m pretrain.gradients --config=configs/gradients.py
    python -m pretrain.gradients --config=configs/gradients.py:adding
    python -m pretrain.gradients --config=configs/gradients.py --config.runs.text=a.txt runs/gpt2

A section is a study, and an empty one is left out.  Where the command names runs, these alone are
studied, by the section `runs`: on a text of yours, at random weights and at those that they have.

The studies over time follow Pascanu, Mikolov & Bengio 2013 (arXiv 1211.5063), those over layers
Glorot & Bengio 2010, and the preset `adding` Hochreiter & Schmidhuber 1997, section 5.4, with the
numbers of Le, Jaitly & Hinton 2015 (arXiv 1504.00941).
"""

from ml_collections import ConfigDict

CELLS = dict(
    rnn_tanh=dict(cell="rnn", activation="tanh"),
    rnn_relu=dict(cell="rnn", activation="relu"),
    gru=dict(cell="gru"),
    lstm=dict(cell="lstm", forget_bias=1.0),  # Jozefowicz et al. 2015
)


def get_config(preset: str = "initial") -> ConfigDict:
    """Returns one of "initial", "adding", "tiny".

    Keys:
        decay, sweep, deep, exploding, adding: the fields of this study; empty: it is left out.
    """
    presets = dict(initial=initial, adding=adding, tiny=tiny)
    if preset not in presets:
        raise ValueError(f"there is no preset {preset!r}; there are {', '.join(presets)}")
    return presets[preset]()


def initial() -> ConfigDict:
    """Returns all studies but the adding problem; 100 seconds on two CPU cores."""
    config = ConfigDict()
    config.seed = 0
    config.cells = CELLS
    # The state begins at zero: 20 positions bring it to where it will be.
    config.decay = dict(T=200, U=128, B=32, burn_in=20)  # by distance, of every cell
    # The recurrent weights of plain RNNs, by their spectral radius.
    config.sweep = dict(kinds=("orthogonal", "normal"), radii=(0.5, 0.8, 1.0, 1.2, 1.5))
    config.deep = dict(N=30, D=128, B=64)
    config.deep.update(activations=("sigmoid", "tanh", "relu"))
    config.deep.update(inits=("normal", "xavier", "orthogonal"))
    # Beyond a spectral radius of 1 gradients can explode: clipping is compared with none.
    config.exploding = dict(T=50, U=64, B=32, radius=1.5)
    config.exploding.cell = CELLS["rnn_tanh"]
    config.exploding.optim = dict(name="sgd", lr=0.05, steps=300, decay="constant")
    config.exploding.clips = (0.0, 1.0)  # limits of the gradient's norm; 0: none
    config.adding = ConfigDict()
    config.runs = dict(text="", T=200, B=32)
    return config


def adding() -> ConfigDict:
    """Returns the recipe of the adding problem: T=100, three cells, three seeds."""
    config = initial()
    for section in ("decay", "sweep", "deep", "exploding"):
        config[section] = ConfigDict()
    config.cells = {name: CELLS[name] for name in ("rnn_tanh", "gru", "lstm")}
    config.adding = dict(T=100, U=64, B=32, seeds=3, radius=1.0)
    config.adding.optim = dict(name="adamw", lr=1e-2, steps=2500, decay="constant")
    config.adding.optim.update(clip=1.0, eps=1e-8)
    return config


def tiny() -> ConfigDict:
    """Returns every study at a size that shows nothing and takes seconds."""
    config = initial()
    config.cells = dict(gru=CELLS["gru"], rnn_tanh=CELLS["rnn_tanh"])
    config.decay.update(T=8, U=8, B=4, burn_in=2)
    config.sweep.update(kinds=("orthogonal",), radii=(1.0,))
    config.deep.update(N=3, D=8, B=4, activations=("tanh",), inits=("xavier",))
    config.exploding.update(T=6, U=8, B=4)
    config.exploding.optim.steps = 4
    config.adding = dict(T=6, U=8, B=4, seeds=1, radius=1.0)
    config.adding.optim = dict(name="adamw", lr=1e-2, steps=4, decay="constant")
    return config
