"""Ids that transformers' AutoTokenizer gives texts, by the Python that PEER_PYTHON names.

PEER_PYTHON -m tests.support.tokenizer_peer FOLDER < texts.json     prints them
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXTS = [
    "",
    " ",
    "The state of the Union is strong.",
    "Café naïve, e\u0301a; Ünï — “quoted” ``so'' ''and``",
    "In 1990, 2,000 or 12,345,678 of 3.14% (7:30)",
    "two  spaces,   three\tand\n\nlines\r\n ",
    "🙂👍🏽 北京大学 한국어 हिन्दी \u0645\u0631\u062d\u0628\u0627 ﬁne ½ ﷺ",
    "<|endoftext|> <unk> a<cls>b <sep> <s></s> <pad> <mask> <eod> \n</w>",
    "don't Mr. U.S.A.: o'clock can't cannot \x07 \x00 \u200b\ufeff x\u00a0y",
    "<a> </b> <clx> < cls> ▁▁ ▁a \U0010ffff",
]


def encode(folder: Path, texts: list[str], **options) -> list[list[int]]:
    """Returns the ids of each text; the test is skipped where no Python has transformers."""
    import pytest

    from benchmarks.contest.options import has_packages

    python = os.environ.get("PEER_PYTHON", sys.executable)
    if not has_packages(python, "transformers"):
        pytest.skip(f"no transformers in {python}: name another in PEER_PYTHON")
    command = [python, "-m", "tests.support.tokenizer_peer", str(folder)]
    job = json.dumps({"texts": texts, "options": options})
    done = subprocess.run(
        command, input=job, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    import transformers

    asked = json.load(sys.stdin)
    tokenizer = transformers.AutoTokenizer.from_pretrained(sys.argv[1])
    print(json.dumps(tokenizer(asked["texts"], **asked["options"])["input_ids"]))
