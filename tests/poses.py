"""A message class of protobuf as protoc would generate it: fields of many types, an enumeration, a map, and messages of other files."""

from google.protobuf import descriptor_pb2, descriptor_pool, duration_pb2, message_factory, timestamp_pb2

F = descriptor_pb2.FieldDescriptorProto


def message_class(more=()):
    """A message class as protoc would generate it. more: names of more fields."""
    file = descriptor_pb2.FileDescriptorProto(
        name="robot/pose.proto",
        package="robot",
        syntax="proto3",
        dependency=[timestamp_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name],
    )
    mode = file.enum_type.add(name="Mode")
    mode.value.add(name="IDLE", number=0)
    mode.value.add(name="RUN", number=1)
    pose = file.message_type.add(name="Pose")
    entry = pose.nested_type.add(name="GainsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    entry.field.add(name="value", number=2, type=F.TYPE_DOUBLE, label=F.LABEL_OPTIONAL)
    add = pose.field.add
    add(name="x", number=1, type=F.TYPE_DOUBLE, label=F.LABEL_OPTIONAL)
    add(name="ticks", number=2, type=F.TYPE_UINT64, label=F.LABEL_OPTIONAL)
    add(name="raw", number=3, type=F.TYPE_BYTES, label=F.LABEL_OPTIONAL)
    add(name="mode", number=4, type=F.TYPE_ENUM, type_name=".robot.Mode", label=F.LABEL_OPTIONAL)
    add(name="path", number=5, type=F.TYPE_FLOAT, label=F.LABEL_REPEATED)
    add(name="at", number=6, type=F.TYPE_MESSAGE, type_name=".google.protobuf.Timestamp", label=F.LABEL_OPTIONAL)
    add(name="gains", number=7, type=F.TYPE_MESSAGE, type_name=".robot.Pose.GainsEntry", label=F.LABEL_REPEATED)
    add(name="took", number=8, type=F.TYPE_MESSAGE, type_name=".google.protobuf.Duration", label=F.LABEL_OPTIONAL)
    for number, name in enumerate(more, 20):
        add(name=name, number=number, type=F.TYPE_STRING, label=F.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    for one in (timestamp_pb2.DESCRIPTOR, duration_pb2.DESCRIPTOR):
        pool.AddSerializedFile(one.serialized_pb)
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("robot.Pose"))


def decoded(name, description, body):
    """A message as a FileDescriptorSet alone describes it."""
    files = list(descriptor_pb2.FileDescriptorSet.FromString(description).file)
    found = message_factory.GetMessages(files, pool=descriptor_pool.DescriptorPool())
    return found[name].FromString(body)
