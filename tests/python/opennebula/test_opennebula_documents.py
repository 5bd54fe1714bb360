"""Requests of VM owners, read from documents, and the domains that result."""

import re
from pathlib import Path
from xml.etree import ElementTree

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opennebula_support import asks, deployment_file, vm_document

from vicinal.base.errors import VicinalError
from vicinal.integrations.opennebula.deploy import add_region, find_tags
from vicinal.integrations.opennebula.request import (
    LIMITS_TEMPLATE,
    Limits,
    RegionRequest,
    read_limits,
    read_request,
)
from vicinal.region import create

REQUEST = RegionRequest(5, "job42", 64 << 20, 16)


def read(asked: str) -> RegionRequest | None:
    return read_request(vm_document(42, 5, asked).encode(), 42)


def test_a_vm_that_asks_for_nothing_gets_nothing() -> None:
    assert read("") is None


def test_what_is_asked_for_is_read() -> None:
    assert read(asks(size="64M")) == REQUEST
    assert read(asks("a", "1G", "<MEMBERS>32</MEMBERS>")) == RegionRequest(5, "a", 1 << 30, 32)


def test_a_region_of_one_owner_is_not_that_of_another() -> None:
    names = {read_request(vm_document(1, owner, asks()).encode(), 1) for owner in (4, 42)}
    assert {each.name for each in names if each} == {
        "vicinal-one-4-job42",
        "vicinal-one-42-job42",
    }


@pytest.mark.parametrize("members", [2, 16, 100])
def test_the_region_is_as_long_as_was_asked_for(tmp_path: Path, members: int) -> None:
    request = RegionRequest(5, "job42", 64 << 20, members)
    length = request.section_bytes
    made = create(tmp_path / "region", members=members, section_bytes=length, for_guests=True)
    with made as region:
        assert region.path.stat().st_size == 64 << 20


JOBS = ["", ".", "..", "../../etc/passwd", "a/b", "a.b", "/a", "-a", "a-", "A", "a b", "a\n", "\na",
        "a" * 33, "ä", "a;rm", "$(id)", "٣", "a\u2028b", "%s", "a'b", '"']  # fmt: skip


@pytest.mark.parametrize("job", JOBS)
def test_a_job_whose_name_could_be_more_than_a_name_is_refused(job: str) -> None:
    with pytest.raises(VicinalError, match="lowercase letters, digits and hyphens") as raised:
        read(asks(job))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("size", "remedy"),
    [
        ("", "such as 64M"),
        ("0M", "such as 64M"),
        ("-64M", "such as 64M"),
        ("64", "such as 64M"),
        ("64K", "such as 64M"),
        ("64M\n", "such as 64M"),
        ("1e3M", "such as 64M"),
        ("٦٤M", "such as 64M"),
        ("9999999999G", "such as 64M"),
        ("48M", "write 64M"),
        ("3G", "write 4096M"),
        ("1M", "raise SIZE or lower MEMBERS"),
        ("65536G", "raise MEMBERS or lower SIZE"),
    ],
)
def test_a_size_that_cannot_be_is_refused(size: str, remedy: str) -> None:
    with pytest.raises(VicinalError) as raised:
        read(asks(size=size))
    assert raised.value.remedy.endswith(remedy)


@pytest.mark.parametrize("members", ["", "1", "513", "-2", "2 ", "1e2", "²"])
def test_members_that_cannot_be_are_refused(members: str) -> None:
    with pytest.raises(VicinalError, match="MEMBERS"):
        read(asks(size="64M", more=f"<MEMBERS>{members}</MEMBERS>"))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("<VICINAL_REGOIN><JOB>a</JOB></VICINAL_REGOIN>", "write VICINAL_REGION"),
        ("<vicinal_region><JOB>a</JOB></vicinal_region>", "write VICINAL_REGION"),
        ("<VICINAL_GPU>1</VICINAL_GPU>", "VICINAL_REGION"),
        (asks(more="<MEMBER>4</MEMBER>"), "write MEMBERS"),
        (asks(more="<PATH>/etc</PATH>"), "JOB, SIZE, MEMBERS"),
        (asks(more="<SIZE>8M</SIZE>"), "more than once"),
        (asks() + asks("other"), "2 times"),
        ("<VICINAL_REGION>job42:1G</VICINAL_REGION>", "VICINAL_REGION = [ JOB"),
        ("<VICINAL_REGION><JOB>a</JOB></VICINAL_REGION>", "no SIZE"),
        ("<VICINAL_REGION><SIZE>8M</SIZE></VICINAL_REGION>", "no JOB"),
    ],
)
def test_a_template_with_a_slip_is_refused(asked: str, said: str) -> None:
    with pytest.raises(VicinalError, match=re.escape(said)):
        read(asked)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("", "is not XML"),
        ("<VM>", "is not XML"),
        ("<VM><ID>42</ID>\0</VM>", "is not XML"),
        ("<HOST/>", "begins with 'HOST'"),
        ("<VM/>", "no ID"),
        ("<VM><ID>4 2</ID></VM>", "no ID"),
        ("<VM><ID>43</ID></VM>", "that of VM 43"),
        (vm_document(42, 5, asks()).replace("<UID>5</UID>", ""), "no UID"),
        (vm_document(42, 5, asks()).replace("<UID>5<", "<UID>../5<"), "no UID"),
        ('<!DOCTYPE VM [<!ENTITY a "b">]><VM><ID>42</ID></VM>', "declares a document type"),
        ("<?xml version='1.0' encoding='no-such'?><VM/>", "is not XML"),
    ],
)
def test_a_document_that_is_not_the_vms_is_refused(document: str, said: str) -> None:
    with pytest.raises(VicinalError, match=said):
        read_request(document.encode(), 42)


@given(st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="<&]")))
def test_no_name_leaves_its_directory(job: str) -> None:
    asked = f"<JOB><![CDATA[{job}]]></JOB><SIZE>8M</SIZE>"
    request, said = None, ""
    try:
        request = read(f"<VICINAL_REGION>{asked}</VICINAL_REGION>")
    except VicinalError as error:
        said = str(error)
    assert said.isprintable()
    assert request is None or Path("/dev/shm", request.name).parent == Path("/dev/shm")


def test_the_region_is_added_and_all_else_stays() -> None:
    """No other byte changes: the stock script searches for text such as source file='...'."""
    before = deployment_file(42).encode()
    after = add_region(before, 42, REQUEST)
    added = [each for each in after.splitlines() if each not in before.splitlines()]
    assert len(added) == 1
    assert after.replace(added[0] + b"\n", b"") == before
    device = ElementTree.fromstring(after).find("devices/shmem")
    assert device is not None
    assert device.attrib == {"name": "vicinal-one-5-job42", "role": "peer"}
    model, size = device.find("model"), device.find("size")
    assert model is not None
    assert size is not None
    assert (model.attrib, size.attrib, size.text) == (
        {"type": "ivshmem-plain"},
        {"unit": "M"},
        "64",
    )


def test_words_that_look_like_an_end_are_none() -> None:
    written = "<domain><name>one-1</name><title>&lt;/domain></title><!-- </domain> -->ä</domain >"
    after = add_region(written.encode(), 1, REQUEST)
    assert after.endswith(b"</devices>\n</domain >")
    with pytest.raises(VicinalError, match="UTF-8"):
        add_region(written.encode("utf-16"), 1, REQUEST)


def test_it_is_added_once() -> None:
    once = add_region(deployment_file(42).encode(), 42, REQUEST)
    assert add_region(once, 42, REQUEST) == once


def test_a_domain_without_devices_gets_some() -> None:
    after = add_region(b"<domain><name>one-1</name></domain>", 1, REQUEST)
    assert ElementTree.fromstring(after).find("devices/shmem/model") is not None


@pytest.mark.parametrize(
    ("old", "new"),
    [("64</size>", "32</size>"), ("ivshmem-plain", "ivshmem-doorbell"), ('"peer"', '"master"')],
)
def test_another_device_of_that_name_is_refused(old: str, new: str) -> None:
    there = add_region(deployment_file(42).encode(), 42, REQUEST).decode().replace(old, new)
    with pytest.raises(VicinalError, match="RAW"):
        add_region(there.encode(), 42, REQUEST)


@pytest.mark.parametrize("name", ["one-43", "one-42 ", "", "../one-42"])
def test_the_file_of_another_vm_is_refused(name: str) -> None:
    with pytest.raises(VicinalError, match="instead of one-42"):
        add_region(f"<domain><name>{name}</name></domain>".encode(), 42, REQUEST)


def test_libvirts_schema_takes_it() -> None:
    domain = ElementTree.fromstring(add_region(deployment_file(42).encode(), 42, REQUEST))
    # OpenNebula writes several devices elements, which libvirt reads and its schema rejects.
    first, *more = domain.findall("devices")
    for devices in more:
        first.extend(devices)
        domain.remove(devices)
    domain.set("type", "test")
    document = ElementTree.tostring(domain, "unicode")
    connection = libvirt.open("test:///default")
    try:
        flags = libvirt.VIR_DOMAIN_DEFINE_VALIDATE
        assert connection.defineXMLFlags(document, flags).name() == "one-42"
    finally:
        connection.close()


def test_limits_are_read(tmp_path: Path) -> None:
    file = tmp_path / "vicinal.conf"
    assert read_limits(file) == Limits()
    file.write_text(LIMITS_TEMPLATE)
    assert read_limits(file) == Limits()
    file.write_text("# none\n\nREGION_SIZE_MAX = 64M # small\n")
    assert read_limits(file) == Limits(region=64 << 20)


@pytest.mark.parametrize("line", ["REGION_SIZE=1G", "REGION_SIZE_MAX", "REGION_SIZE_MAX=much"])
def test_limits_with_a_slip_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / "vicinal.conf").write_text(f"{line}\n")
    with pytest.raises(VicinalError):
        read_limits(tmp_path / "vicinal.conf")


@pytest.mark.parametrize(
    "tags", [b"<cputune></cputune>" * 400_000, b"<a>" * 200_000 + b"</a>" * 200_000]
)
def test_very_many_tags_do_not_take_long(tags: bytes) -> None:
    """Users may write such documents (RAW). Without a limit, parsing took hours for megabytes.

    Each tag took longer than the one before. With such a fault this test hangs; otherwise it takes
    seconds.
    """
    found = find_tags(b"<domain>" + tags + b"</domain>", "domain", "cputune")
    assert len(found) == tags.count(b"<cputune>")
