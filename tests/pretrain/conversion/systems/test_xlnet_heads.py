"""A layer of two states in XLNet's classes is two layers here."""

from pretrain.conversion.systems.xlnet_heads import HEADS
from pretrain.conversion.task_heads import CONDITIONAL


def test_halves_of_one_array_are_two_parameters():
    (head,) = HEADS[CONDITIONAL]
    rows = [head.rows[f"head/{name}/w_DF"] for name in ("end_state", "end_start")]
    assert rows == [("end_logits.dense_0.weight", "F(CD) -> DF", f"C={i}/2") for i in (0, 1)]
