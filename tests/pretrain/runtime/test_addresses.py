"""What may be written down of an address."""

import pytest

from pretrain.runtime.addresses import hide_credentials, remove_credentials


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("text:s3://key:secret@bucket/a/*.txt", "text:s3://bucket/a/*.txt"),
        ("s3://key:se/cr+et@bucket/a", "s3://bucket/a"),
        ("ftp://me:p@ss@host:21/a", "ftp://host:21/a"),
        ("ftp://me@host/a", "ftp://host/a"),
        ("s3://:secret@b/a s3://k:s@c/d", "s3://b/a s3://c/d"),
        ("simplecache::s3://k:s@b/a", "simplecache::s3://b/a"),
        ("https://h/a?X-Amz-Signature=ab%2F&X-Amz-Date=1", "https://h/a"),
        ("https://h/a?v=2&token=abc", "https://h/a?v=2"),
        ("https://h/a?token=abc&v=2", "https://h/a?v=2"),
    ],
)
def test_credentials_leave_an_address(address, public):
    assert remove_credentials(address) == public
    assert remove_credentials(public) == public


@pytest.mark.parametrize(
    "address",
    [
        "sotu",
        "text:/home/me@work/*.txt",
        "text:gs://bucket/a@b/c?.txt",
        "s3://host:9000/a@b/c",
        "https://h/a?versionId=1&b=2",
        "tfds:glue/cola:2.0.0",
        "user:pw@nowhere",
        "",
    ],
)
def test_an_address_without_credentials_is_unchanged(address):
    assert remove_credentials(address) == address


def test_an_error_tells_of_no_credentials():
    with pytest.raises(ValueError, match="unreadable") as error, hide_credentials():
        raise ValueError("text:s3://key:secret@bucket/a.txt: unreadable", 5)
    assert error.value.args == ("text:s3://bucket/a.txt: unreadable", 5)
