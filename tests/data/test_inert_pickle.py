import hashlib
import pickle

import pytest

from ebmlife.data.inert_pickle import Call, parse

# The official batches.meta, as torchvision's MD5 for it proves: what cPickle wrote in 2009.
META = (
    b"\x80\x02}q\x01(U\x13num_cases_per_batchq\x02M\x10'U\x0blabel_namesq\x03]q\x04(U\x08airplaneq\x05"
    b"U\nautomobileq\x06U\x04birdq\x07U\x03catq\x08U\x04deerq\tU\x03dogq\nU\x04frogq\x0bU\x05horseq\x0c"
    b"U\x04shipq\rU\x05truckq\x0eeU\x07num_visq\x0fM\x00\x0cu."
)


def test_an_official_file_is_read():
    assert hashlib.md5(META).hexdigest() == "5ff9c542aee3614f3951f8cda6e48888"
    names = b"airplane automobile bird cat deer dog frog horse ship truck".split()
    assert parse(META) == {b"num_cases_per_batch": 10000, b"label_names": names, b"num_vis": 3072}


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"\x80\x02K\x01.", 1),
        (b"\x80\x02M\x01\x02J\xfe\xff\xff\xff\x86.", (513, -2)),
        (b"\x80\x02N\x88\x89\x87.", (None, True, False)),
        (b"\x80\x02K\x07\x85.", (7,)),
        (b"\x80\x02(K\x01K\x02K\x03U\x01at.", (1, 2, 3, b"a")),
        (b"\x80\x02).", ()),
        (b"\x80\x02]q\x00U\x02xyq\x01ah\x01a.", [b"xy", b"xy"]),
        (b"\x80\x02}U\x01kK\x05s.", {b"k": 5}),
        (b"\x80\x02T\x03\x00\x00\x00a\xff\x00r\x05\x00\x00\x00j\x05\x00\x00\x00\x86.", (b"a\xff\x00", b"a\xff\x00")),
        (b"\x80\x02cnumpy\ndtype\nU\x02u1\x85RK\x04b.", Call("numpy dtype", (b"u1",), 4)),
    ],
)
def test_plain_data_is_read(data, value):
    assert parse(data) == value


class Evil:
    def __reduce__(self):
        return (print, ("executed",))


@pytest.mark.parametrize("protocol", range(6))
def test_nothing_is_run(protocol, capsys):
    with pytest.raises(ValueError, match="unexpected"):
        parse(pickle.dumps(Evil(), protocol=protocol))
    assert capsys.readouterr().out == ""


def test_a_cut_off_file_is_refused():
    for length in range(len(META)):
        with pytest.raises(ValueError):  # noqa: PT011 (pickletools words it in many ways)
            parse(META[:length])


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02.",  # nothing to return
        b"\x80\x02K\x01K\x02.",  # too much to return
        b"\x80\x02h\x07.",  # never remembered
        b"\x80\x02K\x01K\x02a.",  # appended to a number
        b"\x80\x02K\x01t.",  # no mark
        b"\x80\x02}](]K\x01u.",  # a list as a key
        b"\x80\x02}(K\x01u.",  # a key without a value
        b"\x80\x02K\x01Nb.",  # state set on a number
        b"\x80\x02cos\nsystem\n.",
        b"\x80\x03K\x01.",
        b"not a pickle",
    ],
)
def test_malformed_streams_are_value_errors(data):
    with pytest.raises(ValueError):  # noqa: PT011
        parse(data)
