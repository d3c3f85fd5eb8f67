"""Definitions in IDL: read as the `.msg` files that they were made of, or refused in one line."""

import pytest

from penstock import codecs
from penstock.errors import Invalid

pytest.importorskip("rosbags", reason="rosbags is not installed: pip install 'penstock[ros2]'")

from penstock.codecs import ros2, ros2_idl

LINE = "=" * 80
TEXT = f"""{LINE}
IDL: robot_msgs/msg/State
// generated from rosidl_adapter/resource/msg.idl.em
#include "robot_msgs/msg/Part.idl"
#include "builtin_interfaces/msg/Time.idl"

module robot_msgs {{
  module msg {{
    module State_Constants {{
      const int32 FIRST = 1;
      @verbatim (language="comment", text="no @optional field")
      const string WORD = "enum";
    }};
    typedef double double__9[9];
    typedef robot_msgs::msg::Part robot_msgs__msg__Part__2[2];
    @verbatim (language="comment", text=
      "a comment" "\\n"
      "in two lines")
    struct State {{
      @default (value=5)
      int32 count;
      octet raw;
      uint8 small;
      int8 signed_small;
      boolean flag;
      @unit (value="m")
      double x;
      float y;
      int64 wide;
      uint64 wide_unsigned;
      string text;
      string<5> short_text;
      sequence<int32> numbers;
      sequence<int32, 4> few;
      sequence<octet> bytes;
      sequence<string<3>, 2> words;
      double__9 covariance;
      robot_msgs::msg::Part part;
      sequence<robot_msgs::msg::Part> map;
      robot_msgs__msg__Part__2 two;
      builtin_interfaces::msg::Time stamp;
    }};
  }};
}};
{LINE}
IDL: robot_msgs/msg/Part
module robot_msgs {{ module msg {{ struct Part {{ float x; }}; }}; }};
{LINE}
IDL: robot_msgs/msg/Nothing
module robot_msgs {{ module msg {{ struct Nothing {{ uint8 structure_needs_at_least_one_member; }}; }}; }};
"""
SAME = f"""int32 count
byte raw
uint8 small
int8 signed_small
bool flag
float64 x
float32 y
int64 wide
uint64 wide_unsigned
string text
string<=5 short_text
int32[] numbers
int32[<=4] few
byte[] bytes
string<=3[<=2] words
float64[9] covariance
Part part
Part[] map
Part[2] two
builtin_interfaces/Time stamp
{LINE}
MSG: robot_msgs/Part
float32 x
"""


def module(fields):
    return f"module a {{ module msg {{ {fields} }}; }};"


def test_idl_has_the_fields_of_the_msg_file():
    name = "robot_msgs/msg/State"
    one, other = ros2.read(ros2_idl.described(name, TEXT)), ros2.read(ros2.described(name, SAME))
    assert (one.message, one.fields) == (other.message, other.fields)


def test_messages_of_idl_are_cdr():
    codec = codecs.from_spec(ros2_idl.described("a/msg/B", module("struct B { int32 x; string s; };")))
    assert codec.encode({"x": 1, "s": "a"}) == b"\0\1\0\0\1\0\0\0\2\0\0\0a\0"
    assert codec.decode(codec.encode({"x": 1, "s": "a"})) == {"x": 1, "s": "a"}


def test_a_message_without_fields_is_empty():
    assert codecs.from_spec(ros2_idl.described("robot_msgs/msg/Nothing", TEXT)).decode(b"\0\1\0\0\0") == {}


REFUSED = {
    module("struct B { @optional long x; };"): "has '@optional', which is not read here",
    "@mutable " + module("struct B { long x; };"): "has '@mutable'",
    module("enum Color { RED }; struct B { Color x; };"): "a/msg/Color, which the definition lacks",
    module("union U switch (long) { case 1: long x; }; struct B { long y; };"): "it cannot be parsed",
    module("struct B { wstring w; };"): "is a wstring",
    module("struct B { B b; };"): "holds itself",
    module("struct C { long x; };"): "lacks it: it has a/msg/C",
    "": "lacks it: it has nothing",
    "struct {": "it cannot be parsed",
    "x" * (ros2.TEXT_MAX + 1): "letters",
}


@pytest.mark.parametrize("text", REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_read_is_refused_in_one_line(text):
    with pytest.raises(Invalid) as found:
        ros2_idl.described("a/msg/B", text)
    assert REFUSED[text] in str(found.value)
    assert "\n" not in str(found.value)
