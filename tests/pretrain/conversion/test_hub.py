"""Weights come from the Hub, and go there, without what could run code."""

import pytest

from pretrain.conversion import hub as hubs
from pretrain.runtime.errors import UserError
from tests.support.fake_hub import COMMIT, NAME

pytest_plugins = ["tests.support.fake_hub"]


def test_a_repository_is_fetched_without_its_pickles(hub):
    hub.files = {"config.json": b"{}", "vocab.txt": b"a\n", "pytorch_model.bin": b"pickle"}
    folder, address = hubs.download(f"{NAME}@main")
    assert address == f"{NAME}@{COMMIT}"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "config.json": b"{}",
        "vocab.txt": b"a\n",
    }
    assert not [path for path in hub.asked if "pytorch_model" in path]


def test_a_repository_that_is_not_there_is_named(hub):
    with pytest.raises(UserError, match=r"^hub:other/name: the Hub has no such repository"):
        hubs.download("other/name")
    with pytest.raises(UserError, match=r"^hub:a/b/c: "):
        hubs.download("a/b/c")


def test_a_hub_that_cannot_be_reached_is_a_line(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://localhost:9")
    with pytest.raises(UserError) as error:
        hubs.download("org/other")
    assert str(error.value) == "hub:org/other: cannot reach the Hub (Connection refused)"


def test_a_hub_that_may_not_be_asked_is_a_line(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(UserError, match=r"cannot reach the Hub \(HF_HUB_OFFLINE is set\)$"):
        hubs.download("org/other")


def test_a_push_that_reaches_no_hub_is_a_line(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://localhost:9")
    monkeypatch.setenv("HF_TOKEN", "x")
    with pytest.raises(UserError) as error:
        hubs.push(tmp_path, "org/other")
    assert str(error.value) == "--push=org/other: cannot reach the Hub (Connection refused)"


def test_an_exported_folder_is_pushed_file_by_file(hub, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "README.md").write_text("---\nlicense: mit\n---\n")
    (tmp_path / "out" / "model.safetensors").write_bytes(b"12")
    assert hubs.push(tmp_path / "out", NAME) == f"{hub.address}/{NAME}"
    assert set(hub.pushed) == {"README.md", "model.safetensors"}
    assert hub.pushed["model.safetensors"] == b"12"
    assert not hub.is_private
    hubs.push(tmp_path / "out", NAME, private=True)
    assert hub.is_private
