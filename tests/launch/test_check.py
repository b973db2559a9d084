"""A job is refused for its recipe or a key before a machine is rented."""

import pytest

from launch import check

TRAIN = ["python", "-m", "pretrain.main"]


@pytest.mark.parametrize(
    "words",
    [
        ["--config=configs/bert.py", "--config.optim.lr=1"],
        ["--config", "bert:mini", "--config.seed=3"],
        ["--config", "bert", "--config.train.grad_accum=2"],
        ["--config=sst2", "--config.task.name=classify"],  # of one name alone
        [],
    ],
)
def test_keys_of_the_recipe_pass(words):
    check.check([*TRAIN, *words])


@pytest.mark.parametrize("program", ["finetune", "finetune.main", "/there/finetune/main.py"])
def test_of_two_recipes_of_one_name_the_program_has_its_own(program):
    words = ["--config=ulmfit", "--config.task.name=classify"]
    check.check(["python", "-m", program, *words])
    with pytest.raises(ValueError, match=r"task\.name, which is not in the recipe"):
        check.check([*TRAIN, *words])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--config=configs/bert.py", "--config.optm.lr=1"], "did you mean optim.lr?"),
        (["--config=brt"], "there is no recipe brt; did you mean"),
        (["--config=conl2003"], "there is no recipe conl2003; did you mean conll2003?"),
        (["--config", "bert:mini", "--config.seed.x=1"], "above it is a value"),
    ],
)
def test_others_are_refused_with_those_that_are_meant(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        check.main(["--", *TRAIN, *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err
