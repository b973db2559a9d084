"""Curves of several runs in one picture."""

import pytest

from pretrain.runtime import run_config
from pretrain.runtime.errors import UserError
from pretrain.training.reports.curves import draw_curves, list_guesses
from pretrain.training.reports.metrics_file import Writer


def run_of(folder, name, loss=3.0, **recipe):
    """A workdir with the metrics of a short run."""
    writer = Writer(folder / name, 0)
    for step in (1, 2):
        spent = dict(tokens=100 * step, seconds=step + loss)
        writer.write(step, loss=loss / step, **spent)
        writer.write(step, **{"held_out/loss": 4.0 / step, "held_out/unigram": 2.5}, **spent)
    writer.close()
    run_config.write_config(folder / name, recipe)
    return folder / name


@pytest.fixture
def lines(monkeypatch):
    """(label, x, y) of every line, and what is filled."""
    from matplotlib.axes import Axes

    seen = []
    for name in ("plot", "fill_between"):
        plain = getattr(Axes, name)

        def spy(self, *args, plain=plain, **kwargs):
            seen.append((kwargs.get("label"), *args))
            return plain(self, *args, **kwargs)

        monkeypatch.setattr(Axes, name, spy)
    return seen


def test_runs_are_drawn_together(tmp_path, lines):
    draw_curves([run_of(tmp_path, "a"), run_of(tmp_path, "b")], tmp_path / "both.png")
    training, held_out = [3.0, 1.5], [4.0, 2.0]
    assert lines == [
        ("a: training", [1, 2], training),
        ("a: held_out", [1, 2], held_out),
        ("b: training", [1, 2], training),
        ("b: held_out", [1, 2], held_out),
    ]
    assert (tmp_path / "both.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_the_legend_of_many_curves_stands_beside_them(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    drawn = []

    def save(figure, *_given, **_options):
        figure.draw_without_rendering()
        axes = figure.axes[0]
        drawn.append(axes.get_legend().get_window_extent().x0 >= axes.get_window_extent().x1)

    monkeypatch.setattr(Figure, "savefig", save)
    runs = [run_of(tmp_path, name) for name in "abcd"]
    for some in (runs[:2], runs):
        draw_curves(some, tmp_path / "all.png")
    assert drawn == [False, True]


def test_a_metric_that_no_run_has_is_answered_with_those_there_are(tmp_path):
    said = "--metric=f1: there are loss, unigram, held_out/loss, held_out/unigram"
    with pytest.raises(UserError, match=said):
        draw_curves([run_of(tmp_path, "a")], tmp_path / "a.png", "f1")


def test_guesses_that_lie_upon_one_another_are_one_line():
    def line(**guesses):
        return [{"step": 1} | {f"{name}/unigram": x for name, x in guesses.items()}]

    assert list_guesses(line(short=6.34, long=6.44)) == [("unigram", pytest.approx(6.39), "--")]
    apart = list_guesses(line(books=6.34, code=3.1))
    assert apart == [("unigram of books", 6.34, "--"), ("unigram of code", 3.1, ":")]
    assert list_guesses([{"step": 1, "loss": 3.0}]) == []


def test_a_metric_is_drawn_by_what_the_run_has_spent(tmp_path, lines):
    draw_curves([run_of(tmp_path, "a")], tmp_path / "a.png", "unigram", "tokens")
    assert lines == [("a: held_out", [100, 200], [2.5, 2.5])]
    with pytest.raises(UserError, match="--metric=f1: there are loss, unigram"):
        draw_curves([tmp_path / "a"], tmp_path / "a.png", "f1")
    with pytest.raises(UserError, match="--x=flops: a run is of before"):
        draw_curves([tmp_path / "a"], tmp_path / "a.png", x="flops")


def test_seeds_are_one_curve_in_a_band(tmp_path, lines):
    recipes = dict(a=(1.0, 0, 0.1), b=(3.0, 1, 0.1), c=(5.0, 0, 0.2))
    runs = [
        run_of(tmp_path, name, loss, seed=seed, optim=dict(lr=lr))
        for name, (loss, seed, lr) in recipes.items()
    ]
    draw_curves(runs, tmp_path / "all.png", x="seconds", band=True)
    labels = [label for label, *_ in lines]
    assert labels[:2] == ["optim.lr=0.1, 2 runs: training", None]
    assert "c: training" in labels
    assert lines[0][1:] == ([3.0, 4.0], [2.0, 1.0])  # the means
    _, x, low, high = lines[1]
    assert (x, low[0], high[0]) == (
        [3.0, 4.0],
        pytest.approx(2 - 2**0.5),
        pytest.approx(2 + 2**0.5),
    )


def test_a_run_without_metrics_cannot_be_drawn(tmp_path):
    with pytest.raises(UserError, match=rf"^there is no folder {tmp_path / 'none'}$"):
        draw_curves([run_of(tmp_path, "a"), tmp_path / "none"], tmp_path / "both.png")
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match=r"none holds no metrics\.jsonl"):
        draw_curves([run_of(tmp_path, "a"), tmp_path / "none"], tmp_path / "both.png")


def test_a_run_with_one_report_is_a_point(tmp_path):
    from matplotlib import pyplot as plt

    colors = {}
    for steps in (1, 2):
        writer = Writer(tmp_path / f"{steps}", 0)
        for step in range(steps):
            writer.write(step + 1, loss=3.0)
        writer.close()
        draw_curves([tmp_path / f"{steps}"], tmp_path / "one.png")
        # Without the frame, the legend in its corner and the numbers of the axes.
        inner_HWC = plt.imread(tmp_path / "one.png")[220:420, 200:900, :3]
        colors[steps] = int(((inner_HWC[..., 2] - inner_HWC[..., 0]) > 0.2).sum())
    assert colors[1] > 10
    assert colors[2] > 100


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("none/a.png", r"a\.png: there is no folder .*none$"),
        ("a.xyz", r"a\.xyz: no picture is written as \.xyz: name \.png, \.pdf or \.svg$"),
    ],
)
def test_a_picture_that_cannot_be_written_is_named_before_runs_are_read(tmp_path, name, said):
    with pytest.raises(UserError, match=said):
        draw_curves([tmp_path / "no run"], tmp_path / name)


def test_a_picture_that_a_folder_stands_in_the_place_of_is_named(tmp_path):
    (tmp_path / "a.png").mkdir()
    with pytest.raises(UserError, match=r"a\.png: cannot be written: Is a directory"):
        draw_curves([run_of(tmp_path, "a")], tmp_path / "a.png")
