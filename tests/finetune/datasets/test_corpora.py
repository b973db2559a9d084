"""Several data sets become one corpus, in the order in which they are named."""

from finetune.datasets import corpora


def test_the_texts_of_several_data_sets_follow_each_other(tmp_path):
    fields = {}
    for name in ("one", "two"):
        path = tmp_path / name
        path.write_text(f"x first {name}\nx second {name}\n")
        fields[name] = dict(format="table", kind="lines", path=str(path))
    source = corpora.find_source(**fields)
    assert source.name == "one-two"
    assert [path.name for path in source.inputs] == ["one", "two"]
    texts = [line.strip() for document in source.read() for line in document]
    assert texts == ["first one", "second one", "first two", "second two"]
