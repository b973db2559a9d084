"""Each file is found once, however many links lead to it."""

from tests.support.corpora import find_source


def test_globs_descend_and_files_come_sorted(tmp_path):
    for name in ("b/2.txt", "a/deep/1.txt", "0.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    paths = find_source(f"text:{tmp_path}/**/*.txt").inputs
    assert [str(p.relative_to(tmp_path)) for p in paths] == ["0.txt", "a/deep/1.txt", "b/2.txt"]


def test_a_folder_that_links_to_itself_is_read_once(tmp_path, capsys):
    (tmp_path / "deep").mkdir()
    for name in ("a.txt", "deep/b.txt"):
        (tmp_path / name).write_text(name)
    for name in ("again", "deep/back", "deep/once_more"):
        (tmp_path / name).symlink_to(tmp_path)
    for pattern in ("**/*.txt", "**/**/*.txt", "**"):
        paths = find_source(f"text:{tmp_path}/{pattern}").inputs
        assert [str(p.relative_to(tmp_path)) for p in paths] == ["a.txt", "deep/b.txt"]
        (line,) = capsys.readouterr().err.splitlines()
        assert "links to what is read anyway" in line


def test_a_file_is_read_once_whatever_links_to_it(tmp_path, capsys):
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "real.txt").write_text("One.\n")
    (tmp_path / "near").mkdir()
    for name in ("b.txt", "a.txt"):
        (tmp_path / "near" / name).symlink_to("../far/real.txt")
    links = find_source(f"text:{tmp_path}/near/*.txt")
    assert [path.name for path in links.inputs] == ["a.txt"]
    assert "anyway: 1, as " in capsys.readouterr().err
    assert [path.name for path in find_source(f"text:{tmp_path}/*/*.txt").inputs] == ["real.txt"]


def test_a_link_that_leads_elsewhere_is_followed(tmp_path, capsys):
    (tmp_path / "here").mkdir()
    (tmp_path / "there" / "deep").mkdir(parents=True)
    (tmp_path / "there" / "deep" / "a.txt").write_text("One.\n")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there")
    source = find_source(f"text:{tmp_path}/here/**/*.txt")
    assert source.inputs == [tmp_path / "here/link/deep/a.txt"]
    assert not source.has_links
    assert not capsys.readouterr().err
