"""What transformers computes of releases, recorded for where it is not installed.

    python -m tests.support.transformers_peer FOLDER ...

adds to each folder's inputs.npz what the class in its config.json makes of these rows.
"""

import json
import pathlib
import sys

import numpy as np

INPUTS = {
    "tokens": "input_ids",
    "valid": "attention_mask",
    "segments": "token_type_ids",
    "forbidden": "p_mask",
    "null": "cls_index",
}


def record(folder: pathlib.Path) -> None:
    """Runs the model in a folder, in float32 on the CPU."""
    import torch
    import transformers

    arrays = dict(np.load(folder / "inputs.npz"))
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, report = getattr(transformers, name).from_pretrained(
        folder, output_loading_info=True, attn_implementation="eager"
    )
    assert not report["missing_keys"], (name, report["missing_keys"])
    assert not report["unexpected_keys"], (name, report["unexpected_keys"])
    given = {INPUTS[x]: torch.tensor(arrays[x]).long() for x in INPUTS if x in arrays}
    if "p_mask" in given:
        given["p_mask"] = given["p_mask"].float()
    with torch.no_grad():
        outputs = model.eval()(**given, output_hidden_states=True)
    found = {k: x.numpy() for k, x in outputs.items() if isinstance(x, torch.Tensor)}
    if "hidden_states" in outputs:
        found["states"] = outputs["hidden_states"][-1].numpy()
    np.savez(folder / "outputs.npz", **found)


if __name__ == "__main__":
    for path in sys.argv[1:]:
        record(pathlib.Path(path))
