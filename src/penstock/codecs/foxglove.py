"""Foxglove's own schemas: whether a class has the fields of the schema that it names. Knows JSON Schema; needs no package.

The table is that of foxglove-sdk; a test compares them. Times are objects of `sec` and `nsec`, enumerations whole numbers, bytes base64.
"""

from __future__ import annotations

import functools
from typing import Any

from penstock.errors import Invalid

PREFIX = "foxglove."
# JSON's types that are one of these.
FITTING = {
    "number": ("number", "integer"),
    "integer": ("integer",),
    "string": ("string",),
    "bytes": ("string",),
    "boolean": ("boolean",),
}
TABLE = """
Time sec:integer nsec:integer
ArrowPrimitive pose:Pose shaft_length:number shaft_diameter:number head_length:number head_diameter:number color:Color
CameraCalibration timestamp:Time frame_id:string width:integer height:integer distortion_model:string D:number[] K:number[] R:number[] P:number[]
CircleAnnotation timestamp:Time position:Point2 diameter:number thickness:number fill_color:Color outline_color:Color metadata:KeyValuePair[]
Color r:number g:number b:number a:number
CompressedAudio timestamp:Time data:bytes format:string
CompressedImage timestamp:Time frame_id:string data:bytes format:string
CompressedPointCloud timestamp:Time frame_id:string pose:Pose data:bytes format:string
CompressedVideo timestamp:Time frame_id:string data:bytes format:string
CubePrimitive pose:Pose size:Vector3 color:Color
CylinderPrimitive pose:Pose size:Vector3 bottom_scale:number top_scale:number color:Color
Event start_time:Time end_time:Time metadata:KeyValuePair[]
FrameTransform timestamp:Time parent_frame_id:string child_frame_id:string translation:Vector3 rotation:Quaternion
FrameTransforms transforms:FrameTransform[]
GeoJSON geojson:string
Grid timestamp:Time frame_id:string pose:Pose column_count:integer cell_size:Vector2 row_stride:integer cell_stride:integer fields:PackedElementField[] data:bytes
ImageAnnotations timestamp:Time circles:CircleAnnotation[] points:PointsAnnotation[] texts:TextAnnotation[] metadata:KeyValuePair[]
JointState name:string position:number velocity:number acceleration:number effort:number
JointStates timestamp:Time joints:JointState[]
KeyValuePair key:string value:string
LaserScan timestamp:Time frame_id:string pose:Pose start_angle:number end_angle:number ranges:number[] intensities:number[]
LinePrimitive type:integer pose:Pose thickness:number scale_invariant:boolean points:Point3[] color:Color colors:Color[] indices:integer[]
LocationFix timestamp:Time frame_id:string latitude:number longitude:number altitude:number position_covariance:number[] position_covariance_type:integer heading:number velocity:Vector3 color:Color metadata:KeyValuePair[]
LocationFixes fixes:LocationFix[]
Log timestamp:Time level:integer message:string name:string file:string line:integer
ModelPrimitive pose:Pose scale:Vector3 color:Color override_color:boolean url:string media_type:string data:bytes
Odometry timestamp:Time frame_id:string body_frame_id:string pose:Pose linear_velocity:Vector3 angular_velocity:Vector3 pose_covariance:number[] velocity_covariance:number[] metadata:KeyValuePair[]
PackedElementField name:string offset:integer type:integer
Point2 x:number y:number
Point3 x:number y:number z:number
Point3InFrame timestamp:Time frame_id:string point:Point3
PointCloud timestamp:Time frame_id:string pose:Pose point_stride:integer fields:PackedElementField[] data:bytes
PointsAnnotation timestamp:Time type:integer points:Point2[] outline_color:Color outline_colors:Color[] fill_color:Color thickness:number metadata:KeyValuePair[]
Pose position:Vector3 orientation:Quaternion
PoseInFrame timestamp:Time frame_id:string pose:Pose
PosesInFrame timestamp:Time frame_id:string poses:Pose[]
Quaternion x:number y:number z:number w:number
RawAudio timestamp:Time data:bytes format:string sample_rate:integer number_of_channels:integer
RawImage timestamp:Time frame_id:string width:integer height:integer encoding:string step:integer data:bytes
SceneEntity timestamp:Time frame_id:string id:string lifetime:Time frame_locked:boolean metadata:KeyValuePair[] arrows:ArrowPrimitive[] cubes:CubePrimitive[] spheres:SpherePrimitive[] cylinders:CylinderPrimitive[] lines:LinePrimitive[] triangles:TriangleListPrimitive[] texts:TextPrimitive[] models:ModelPrimitive[]
SceneEntityDeletion timestamp:Time type:integer id:string
SceneUpdate deletions:SceneEntityDeletion[] entities:SceneEntity[]
SpherePrimitive pose:Pose size:Vector3 color:Color
TextAnnotation timestamp:Time position:Point2 text:string font_size:number text_color:Color background_color:Color metadata:KeyValuePair[]
TextPrimitive pose:Pose billboard:boolean font_size:number scale_invariant:boolean color:Color text:string
TriangleListPrimitive pose:Pose points:Point3[] color:Color colors:Color[] indices:integer[]
Vector2 x:number y:number
Vector3 x:number y:number z:number
VoxelGrid timestamp:Time frame_id:string pose:Pose row_count:integer column_count:integer cell_size:Vector3 slice_stride:integer row_stride:integer cell_stride:integer fields:PackedElementField[] data:bytes
"""


@functools.cache
def schemas() -> dict[str, dict[str, str]]:
    """Name → field → type: a key of `FITTING`, or another name; `[]` behind it for a list."""
    lines = [line.split() for line in TABLE.strip().splitlines()]
    return {name: dict(field.split(":") for field in fields) for name, *fields in lines}


def check(schema: str, found: dict[str, Any] | None, whose: str) -> None:
    """`Invalid` if messages of a JSON Schema are not of Foxglove's schema of that name; other names are not checked. whose: for the error.

    Fields may be more than Foxglove's. found: None for messages of which nothing is known.
    """
    if not schema.startswith(PREFIX):
        return
    name = schema.removeprefix(PREFIX)
    if name not in schemas() or name == "Time":
        import difflib  # only where something is wrong

        near = difflib.get_close_matches(name, schemas(), 1)
        raise Invalid(f"Foxglove has no schema {schema}" + (f": did you mean {PREFIX}{near[0]}?" if near else ""))
    if found is not None and (wrong := _misfit(name, found, "")):
        raise Invalid(f"{whose} is no {schema}: {wrong}")


def schema_of(value: Any) -> dict[str, Any]:
    """The JSON Schema of one value."""
    if isinstance(value, dict):
        return {"type": "object", "properties": {key: schema_of(one) for key, one in value.items()}}
    if isinstance(value, list):
        return {"type": "array", **({"items": schema_of(value[0])} if value else {})}
    kinds = {bool: "boolean", int: "integer", float: "number", str: "string"}
    return {"type": kinds.get(type(value), "null")}


def _misfit(kind: str, found: dict[str, Any], place: str) -> str:
    """The first place where a JSON Schema is not of a type, in words; empty if it fits, or leaves it open."""
    if "anyOf" in found:
        choices = [one for one in found["anyOf"] if one.get("type") != "null"]
        wrongs = [_misfit(kind, one, place) for one in choices]
        return "" if not all(wrongs) or not wrongs else wrongs[0]
    there = found.get("type")
    if there is None:
        return ""
    there = [one for one in there if one != "null"] if isinstance(there, list) else [there]
    if kind.endswith("[]"):
        if "array" not in there:
            return f"{place} must be a list"
        inner = found.get("items")
        return _misfit(kind[:-2], inner, f"{place}[]") if isinstance(inner, dict) else ""
    if kind in FITTING:
        return "" if set(there) & set(FITTING[kind]) else f"{place} must be {_word(kind)}"
    if "object" not in there:
        return f"{place} must be an object of {', '.join(schemas()[kind])}"
    if "properties" not in found:  # any keys
        return ""
    for field, of in schemas()[kind].items():
        inside = f"{place}.{field}" if place else field
        if field not in found["properties"]:
            return f"the field {inside} is missing"
        if wrong := _misfit(of, found["properties"][field], inside):
            return wrong
    return ""


def _word(kind: str) -> str:
    return {"integer": "a whole number", "boolean": "true or false", "bytes": "text in base64", "string": "text"}.get(
        kind, "a number"
    )
