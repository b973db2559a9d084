"""Tags of words: in the scheme of the files, in the one that is learned, and by their ids."""

from collections.abc import Sequence
from typing import Any

from finetune.inputs.labels import UNKNOWN, Unseen
from finetune.metrics import tag_schemes
from pretrain.runtime.errors import UserError


class TagSet:
    """The labels that a task learns.

    Attributes:
        labels: in order of their ids.
        scheme, learned: of `tag_schemes.SCHEMES`, of the files and to learn; "": labels mark no
            entities.
        strict_scheme: the one in which entities must be well-formed to count; None: none.
        unseen: labels of held-out examples that are none of these.
    """

    def __init__(
        self,
        examples: Sequence[dict],
        labels: Sequence[str] = (),
        *,
        scheme: str = "",
        convert_to: str = "",
        strict: bool = False,
        closed: bool | None = None,
    ):
        """
        Args:
            examples: of training, whose labels these are where `labels` lists none.
            convert_to, closed: as `finetune.tasks.tag.TaskData`.
        """
        for name in filter(None, (scheme, convert_to)):
            tag_schemes.get_scheme(name)
        if convert_to and not scheme:
            raise UserError(f"task.convert_to={convert_to!r}: task.scheme is to name the files'")
        self.scheme, self.learned = scheme, convert_to or scheme
        self.strict_scheme = self.learned if strict else None
        self.unseen = Unseen(bool(labels) if closed is None else closed)
        # Listed by hand or restored, labels come first: their order is that of the head's logits.
        self.labels = list(labels) or self._list_labels(examples)
        if len(self.labels) < 2:
            raise UserError(f"there are {len(self.labels)} labels in the training set: need two")
        self._ids = {label: i for i, label in enumerate(self.labels)}

    def _list_labels(self, examples: Sequence[dict]) -> list[str]:
        present = {label for x in examples for label in self.convert(x) or ()}
        if not self.scheme:
            return sorted(present)
        # A tag that training lacks, as S-LOC, may be needed on dev all the same.
        types = sorted({tag_schemes.parse_tag(label).type for label in present - {"O"}})
        letters = tag_schemes.get_scheme(self.learned).written.replace("O", "")
        return ["O"] + [f"{x}-{type_}" if type_ else x for type_ in types for x in letters]

    def convert(self, example: dict) -> list[str] | None:
        """Converts an example's labels to the scheme to learn; None: it has none.

        Raises:
            UserError: they break the file's scheme.
        """
        tags, where = example["labels"], example["where"]
        if tags is None:
            return None
        if len(tags) != len(example["words"]):
            raise UserError(f"{where}: {len(tags)} labels for {len(example['words'])} words")
        return tag_schemes.convert(tags, self.scheme, self.learned, where) if self.scheme else tags

    def ids(self, example: dict) -> list[int]:
        """Returns the labels' ids, UNKNOWN or UNSEEN.

        Raises:
            UserError: there can be no such label.
        """
        tags, where = self.convert(example), example["where"]
        if tags is None:
            return [UNKNOWN] * len(example["words"])
        return [
            self._ids[tag] if tag in self._ids else self.unseen.number(tag, self.labels, where)
            for tag in tags
        ]

    def format(self, tags: list[str]) -> dict[str, Any]:
        """Formats tags that were learned: in the scheme of the files, and the entities."""
        if not self.scheme:
            return {"labels": tags}
        entities = tag_schemes.entities(tags, self.strict_scheme)
        labels = tag_schemes.to_tags(entities, len(tags), self.scheme)
        return {"labels": labels, "entities": [e._asdict() for e in entities]}
