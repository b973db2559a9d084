"""Files that recipes name: found here or on Python's path, and clearly refused."""

import pytest

from modules import plugins

BACKBONES = "modules.backbones"


def test_a_plain_name_is_a_file_of_the_folder():
    module = plugins.load(BACKBONES, "two_stream", "Backbone")
    assert module.__name__ == "modules.backbones.two_stream"


def test_a_dotted_name_is_a_module_on_the_path(tmp_path, monkeypatch):
    (tmp_path / "own_nets").mkdir()
    (tmp_path / "own_nets" / "rwkv.py").write_text("class Backbone: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert plugins.load(BACKBONES, "own_nets.rwkv", "Backbone").Backbone.__name__ == "Backbone"


@pytest.mark.parametrize("name", ["nothing", "no_package.nothing", "modules.nothing", "../x"])
def test_an_unknown_name_is_refused_with_the_known_ones(name):
    with pytest.raises(plugins.UnknownNameError, match=r"has awd_lstm, .*transformer, two_stream;"):
        plugins.load(BACKBONES, name, "Backbone")


def test_a_file_that_only_imports_the_content_is_refused():
    with pytest.raises(
        plugins.UnknownNameError, match=r"no pretrain\.data\.tokenizers\.character_ids"
    ):
        plugins.load("pretrain.data.tokenizers", "character_ids", "Tokenizer")


def test_an_error_inside_the_file_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "broken.py").write_text("import a_module_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_there"):
        plugins.load(BACKBONES, "pack.broken", "Backbone")


def test_files_are_found_by_the_fields_that_they_have():
    folder, content = "pretrain.data.batches", "BatchLayout"
    assert plugins.list_owners(folder, content, ["next_sentence", "L"]) == ["pairs"]
    assert {"windows", "pairs", "bptt"} <= {*plugins.list_owners(folder, content, ["B", "L"])}
    assert not plugins.list_owners(folder, content, ["next_sentence", "bptt"])


def test_fields_that_do_not_fit_are_listed_beside_those_that_are_missing():
    def build(rows, *, kind):
        return rows, kind

    with pytest.raises(plugins.UnfitFieldsError, match="; there are rows, kind") as error:
        plugins.check_fields(build, dict(row=3, kind="x"))
    assert (error.value.owner, error.value.unknown) == (build, ["row"])
    with pytest.raises(plugins.UnfitFieldsError) as error:
        plugins.check_fields(lambda rows, **more: None, dict(row=3))
    assert error.value.unknown == []
