// Channels of the network log: their ends, their endpoints' files, and what they count.
#include "bind/ground/arguments.hpp"
#include "bind/ground/status.hpp"
#include "bind/handles/publication.hpp"
#include "bind/handles/subscription.hpp"
#include "bind/udp/udp_ends.hpp"

#include "net/io/conductor.hpp"
#include "net/receive/files/endpoint_members.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <optional>

namespace penstock::bind {

namespace {

// An address as Python gives it: 16 bytes of the host, the interface of a link-local one, the port.
Address address_of(const nb::tuple &given) {
    Address address;
    const auto host = nb::cast<nb::bytes>(given[0]);
    if (host.size() != address.host.size()) throw Error(Code::invalid, "an address has 16 bytes");
    std::memcpy(address.host.data(), host.data(), host.size());
    address.scope = nb::cast<uint32_t>(given[1]);
    address.port = nb::cast<uint16_t>(given[2]);
    return address;
}
nb::tuple tuple_of(const Address &address) {
    return nb::make_tuple(nb::bytes(address.host.data(), address.host.size()), address.scope, address.port);
}
FlowControl flow_control_of(const std::string &name) {
    if (name == "min") return FlowControl::min;
    return name == "tagged" ? FlowControl::tagged : FlowControl::max;
}

// Keys of 32 bytes each; none: datagrams are clear.
Keys keys_of(const std::vector<nb::bytes> &given) {
    if (given.empty()) return nullptr;
    std::vector<Secret> secrets(given.size());
    for (size_t i = 0; i < given.size(); ++i) {
        if (given[i].size() != secrets[i].size()) throw Error(Code::invalid, "a key has 32 bytes");
        std::memcpy(secrets[i].data(), given[i].data(), given[i].size());
    }
    return std::make_shared<const Keyring>(secrets);
}

uint64_t drop_ns(double drop_after) { return static_cast<uint64_t>(seconds_to_ns(drop_after)); }

nb::dict dict_of(const UdpCounts &counts) {
    nb::dict found;
    const std::pair<const char *, uint64_t> entries[] = {
        {"datagrams_sent", counts.datagrams_sent},
        {"bytes_sent", counts.bytes_sent},
        {"datagrams_received", counts.datagrams_received},
        {"bytes_received", counts.bytes_received},
        {"setups", counts.setups},
        {"heartbeats", counts.heartbeats},
        {"statuses", counts.statuses},
        {"naks_sent", counts.naks_sent},
        {"naks_received", counts.naks_received},
        {"retransmitted", counts.retransmitted},
        {"retransmitted_bytes", counts.retransmitted_bytes},
        {"duplicates", counts.duplicates},
        {"overruns", counts.overruns},
        {"overlaps", counts.overlaps},
        {"losses", counts.losses},
        {"bytes_lost", counts.bytes_lost},
        {"setup_requests", counts.setup_requests},
        {"malformed", counts.malformed},
        {"rejected", counts.rejected},
        {"held", counts.held},
        {"sessions", counts.sessions},
        {"sessions_refused", counts.sessions_refused},
        {"takeovers", counts.takeovers},
        {"send_refused", counts.send_refused},
        {"send_failed", counts.send_failed},
        {"receive_failed", counts.receive_failed},
        {"truncated", counts.truncated},
        {"segmented", counts.segmented},
        {"coalesced", counts.coalesced},
        {"unauthenticated", counts.unauthenticated},
        {"replayed", counts.replayed},
        {"sessions_displaced", counts.sessions_displaced},
        {"sessions_challenged", counts.sessions_challenged},
        {"destinations_refused", counts.destinations_refused},
        {"destinations_displaced", counts.destinations_displaced},
        {"receivers_refused", counts.receivers_refused},
        {"naks_refused", counts.naks_refused},
    };
    for (const auto &[name, value] : entries) found[name] = value;
    return found;
}

nb::dict dict_of(const UdpSession &session) {
    nb::dict found;
    found["session"] = session.session;
    found["initial_term_id"] = session.initial_term_id;
    found["source"] = session.source;
    found["description"] = nb::bytes(session.description.data(), session.description.size());
    found["join"] = session.join;
    found["position"] = session.position;
    found["high"] = session.high;
    found["lag"] = session.lag;
    found["term_length"] = session.term_length;
    found["mtu"] = session.mtu;
    found["state"] = session.state;
    return found;
}

// The receivers that a publication hears of, by the bytes of the file where it shows them. None: they are changing; look again.
nb::object receivers_of(nb::bytes file) {
    const auto *bytes = static_cast<const uint8_t *>(file.data());
    if (file.size() < counts_file_size) throw Error(Code::corrupt, "a publication's counts are cut short");
    const auto &table = *reinterpret_cast<const ReceiverTable *>(bytes + receiver_table_offset);
    if (table.version.relaxed() % 2 != 0 || table.count.relaxed() > FlowLimit::receivers_max) return nb::none();
    nb::list found;
    for (uint32_t i = 0; i < table.count.relaxed(); ++i) {
        const ReceiverRow &row = table.rows[i];
        const uint64_t host[2] = {row.host[0].relaxed(), row.host[1].relaxed()};
        nb::dict one;
        one["address"] = std::pair(nb::bytes(reinterpret_cast<const char *>(host), sizeof host), row.port.relaxed());
        one["receiver"] = row.receiver.relaxed();
        one["position"] = row.position.relaxed();
        one["window"] = row.window.relaxed();
        one["readers"] = row.readers.relaxed();
        one["round_trip"] = row.round_trip.relaxed();
        one["naks"] = row.naks.relaxed();
        one["heard"] = row.heard.relaxed();
        one["mtu"] = table.mtu;
        one["limited"] = row.limited.relaxed() != 0;
        one["arrives"] = row.arrives.relaxed();
        found.append(one);
    }
    return std::move(found);
}

UdpReader &reader_of(Subscription &subscription) { return dynamic_cast<UdpReaderEnd &>(subscription.ready()).reader(); }
UdpWriter &writer_of(Publication &publication) { return dynamic_cast<UdpWriterEnd &>(publication.ready()).writer(); }

// The living subscriptions, as `Member` in status.py has them, and the dead ones; the rest is in the images.
nb::list subscriptions_of(int fd, const EndpointFile &file, nb::list &dead) {
    std::vector<MemberStatus> members;
    std::vector<DeadMember> gone;
    const LatencyTable latencies(*file.mapping(), file.options().slot_count);
    const SlotTable<EndpointSlot> slots(fd, *file.mapping(), file.options().slot_count);
    for (uint32_t i = 0; i < file.options().slot_count; ++i) {
        if (!EndpointMembers::subscribes(slots[i])) continue;
        const EndpointSlot::Identity &identity = slots[i].identity;
        MemberStatus member{i, "subscription"};
        member.pid = identity.pid.relaxed();
        member.joined_ns = identity.joined_ns.relaxed();
        if (!slots.held(i)) {
            gone.push_back({member.role, member.pid, member.joined_ns});
            continue;
        }
        const auto &counts = slots[i].subscriber;
        member.messages = counts.messages.relaxed();
        member.bytes = counts.bytes.relaxed();
        member.bytes_lost = counts.bytes_lost.relaxed();
        member.latency = latencies.of(i, member.joined_ns);
        members.push_back(std::move(member));
    }
    dead = dead_list(gone);
    return members_list(members);
}

// The counts of all subscriptions, those that are gone among them.
nb::dict totals_of(int fd, const EndpointFile &file) {
    const auto &gone = file.control().totals;
    const SlotTable<EndpointSlot> slots(fd, *file.mapping(), file.options().slot_count);
    const auto [messages, bytes, lost] =
        add_up([&] { return std::array{gone.messages.relaxed(), gone.bytes.relaxed(), gone.bytes_lost.relaxed()}; },
               [&](auto &sum) {
                   for (uint32_t i = 0; i < file.options().slot_count; ++i) {
                       sum[0] += count_of(slots[i].subscriber.messages);
                       sum[1] += count_of(slots[i].subscriber.bytes);
                       sum[2] += count_of(slots[i].subscriber.bytes_lost);
                   }
               });
    nb::dict totals;
    totals["messages_received"] = messages;
    totals["bytes_received"] = bytes;
    totals["bytes_lost"] = lost;
    totals["reaped"] = slots.died([](const EndpointSlot &s) -> const Deaths & { return s.subscriber.deaths; },
                                  [](const EndpointSlot &s) { return EndpointMembers::subscribes(s); });
    return totals;
}

// All images. Each is a log in a separate file.
nb::list images_of(const EndpointFile &file) {
    nb::list images;
    for (uint32_t i = 0; i < images_max; ++i) {
        const ImageEntry &entry = file.entry(i);
        const uint64_t number = entry.number.acquire(); // SYNC -: for people; the image may go at any moment
        if (number == 0) continue;
        const SourceWords &source = entry.source[entry.which.relaxed() & 1];
        const uint64_t host[2] = {source.host[0].relaxed(), source.host[1].relaxed()};
        const uint32_t length = std::min(entry.description_length.acquire(), description_max); // SYNC -: the same
        std::string description;
        for (uint32_t at = 0; at < length; at += 8) {
            const uint64_t word = entry.description[at / 8].relaxed();
            description.append(reinterpret_cast<const char *>(&word), std::min<uint32_t>(8, length - at));
        }
        nb::dict image;
        image["path"] = file.image_file(number);
        image["session"] = static_cast<int32_t>(entry.session.relaxed());
        image["source"] = std::pair(nb::bytes(reinterpret_cast<const char *>(host), sizeof host), source.port.relaxed());
        image["high"] = entry.high.relaxed();
        image["bytes_lost"] = entry.bytes_lost.relaxed();
        const SessionWords &words = entry.words;
        image["mtu"] = entry.mtu.relaxed();
        image["datagrams"] = words.datagrams.relaxed();
        image["bytes"] = words.bytes.relaxed();
        image["naks"] = words.naks.relaxed();
        image["repaired"] = words.repaired.relaxed();
        image["losses"] = words.losses.relaxed();
        image["duplicates"] = words.duplicates.relaxed();
        image["round_trip"] = words.round_trip.relaxed();
        image["clock_offset"] = static_cast<int64_t>(words.clock_offset.relaxed());
        image["clock_error"] = words.clock_error.relaxed();
        image["clock_correction"] = static_cast<int64_t>(words.clock_correction.relaxed());
        image["heard"] = words.heard.relaxed();
        image["consumed"] = words.consumed.relaxed();
        image["window"] = words.window.relaxed();
        image["state"] = words.state.relaxed();
        image["path_limit"] = words.path_limit.relaxed();
        image["description"] = nb::bytes(description.data(), description.size());
        images.append(image);
    }
    return images;
}

// Reads an endpoint's file without disturbing anyone.
nb::dict inspect_endpoint(int fd, const std::string &path) {
    const EndpointFile file(fd, path);
    const UdpEndpointOptions &options = file.options();
    EndpointControl &control = file.control();
    OpenedChannel about;
    read_common(reinterpret_cast<const Header *>(file.mapping()->bytes()), path, about);
    nb::dict found;
    found["stream_id"] = options.stream;
    found["window"] = options.window;
    found["reliable"] = options.reliable;
    found["group_tag"] = options.group_tag;
    found["receive_buffer"] = options.receive_buffer;
    found["control"] = nb::none();
    if (options.control) found["control"] = tuple_of(*options.control);
    found["interface"] = tuple_of(options.interface);
    found["sealed"] = options.sealed;
    found["max_members"] = options.slot_count / 2; // a process takes a slot, too
    found["created_ns"] = about.created_ns;
    found["metadata"] = nb::bytes(about.metadata.data(), about.metadata.size());
    UdpCounts counts;
    uint64_t words[counts_words];
    for (size_t i = 0; i < counts_words; ++i) words[i] = control.counts.words[i].relaxed();
    std::memcpy(&counts, words, sizeof counts);
    found["counts"] = dict_of(counts);
    found["holder"] = holds_any(fd, lock_byte::owner) ? control.rare.owner_pid.relaxed() : 0;
    found["granted"] = control.rare.window.relaxed();
    nb::list dead;
    found["members"] = subscriptions_of(fd, file, dead);
    found["dead"] = dead;
    found["totals"] = totals_of(fd, file);
    found["latency"] = latency_words(LatencyTable(*file.mapping(), options.slot_count).all());
    found["images"] = images_of(file);
    found["sessions_closed"] = control.ended.closed.relaxed();
    found["sessions_lost"] = control.ended.lost.relaxed();
    return found;
}

void bind_endpoints(nb::module_ &m) {
    m.def("inspect_endpoint", &inspect_endpoint, nb::arg("fd"), nb::arg("path"),
          "Options, counters, subscriptions and images, read without disturbing anyone.");
    m.def("forget_endpoint", &forget_endpoint, nb::arg("fd"), nb::arg("path"), nb::arg("made"),
          "Removes an endpoint's file if no subscription is there, and the caller has made it or nobody has ever received. True "
          "if it has no name.");
    m.def("endpoint_file_size", &endpoint_file_size, nb::arg("slots"), "Bytes that an endpoint's file takes.");
    m.def(
        "format_endpoint",
        [](int fd, nb::tuple at, int32_t stream, uint32_t window, bool reliable, std::optional<int64_t> group_tag,
           uint32_t receive_buffer, uint32_t slots, nb::tuple interface, std::optional<nb::tuple> control, bool sealed,
           nb::bytes metadata, nb::bytes boot_id) {
            UdpEndpointOptions options;
            options.at = address_of(at);
            options.stream = stream;
            options.window = window;
            options.reliable = reliable;
            options.group_tag = group_tag;
            options.receive_buffer = receive_buffer;
            options.slot_count = slots;
            options.interface = address_of(interface);
            if (control) options.control = address_of(*control);
            options.sealed = sealed;
            format_endpoint(fd, options, text_of(metadata), boot_of(boot_id), system_ns(CLOCK_REALTIME));
        },
        nb::kw_only(), nb::arg("fd"), nb::arg("at"), nb::arg("stream"), nb::arg("window"), nb::arg("reliable"),
        nb::arg("group_tag").none(), nb::arg("receive_buffer"), nb::arg("slots"), nb::arg("interface"), nb::arg("control").none(),
        nb::arg("sealed"), nb::arg("metadata"), nb::arg("boot_id"),
        nb::sig(
            "def format_endpoint(*, fd: int, at: tuple[bytes, int, int], stream: int, window: int, reliable: bool, group_tag: "
            "int | None, receive_buffer: int, slots: int, interface: tuple[bytes, int, int], control: "
            "tuple[bytes, int, int] | None, sealed: bool, metadata: bytes, boot_id: bytes) -> None"));
}

void bind_ends(nb::module_ &m) {
    m.def(
        "udp_writer",
        [](std::string uri, std::string prefix, nb::tuple to, int32_t stream, std::optional<int32_t> session, uint32_t mtu,
           uint32_t term_length, uint32_t capacity, int32_t initial_term_id, uint64_t start_position,
           const std::string &flow_control, int64_t group_tag, double linger, uint32_t slots, nb::bytes metadata,
           nb::tuple interface, uint8_t ttl, uint32_t send_buffer, uint32_t receive_buffer, std::optional<nb::tuple> control,
           std::optional<std::vector<nb::tuple>> destinations, std::vector<std::string> names, const std::vector<nb::bytes> &keys,
           std::shared_ptr<ManualClock> clock) -> std::shared_ptr<WriterEnd> {
            UdpWriterOptions options;
            options.to = address_of(to);
            options.stream = stream;
            options.session = session;
            options.mtu = mtu;
            options.term_length = term_length;
            options.capacity = capacity;
            options.initial_term_id = initial_term_id;
            options.start_position = start_position;
            options.flow_control = flow_control_of(flow_control);
            options.group_tag = group_tag;
            options.linger_ns = seconds_to_ns(linger);
            options.slot_count = slots;
            options.metadata = options.description = text_of(metadata);
            options.interface = address_of(interface);
            options.ttl = ttl;
            options.send_buffer = send_buffer;
            options.receive_buffer = receive_buffer;
            if (control) options.control = address_of(*control);
            options.multi_destination = destinations.has_value();
            if (destinations)
                for (const nb::tuple &one : *destinations) options.destinations.push_back(address_of(one));
            options.names = std::move(names);
            options.keys = keys_of(keys);
            return std::make_shared<UdpWriterEnd>(std::move(uri), std::move(prefix), std::move(options), std::move(clock));
        },
        nb::kw_only(), nb::arg("uri"), nb::arg("prefix"), nb::arg("to"), nb::arg("stream"), nb::arg("session").none(),
        nb::arg("mtu"), nb::arg("term_length"), nb::arg("capacity"), nb::arg("initial_term_id"), nb::arg("start_position"),
        nb::arg("flow_control"), nb::arg("group_tag"), nb::arg("linger"), nb::arg("slots"), nb::arg("metadata"),
        nb::arg("interface"), nb::arg("ttl"), nb::arg("send_buffer"), nb::arg("receive_buffer"), nb::arg("control").none(),
        nb::arg("destinations").none(), nb::arg("names"), nb::arg("keys"), nb::arg("clock").none(),
        nb::sig(
            "def udp_writer(*, uri: str, prefix: str, to: tuple[bytes, int, int], stream: int, session: int | None, mtu: int, "
            "term_length: int, capacity: int, initial_term_id: int, start_position: int, flow_control: str, group_tag: int, "
            "linger: float, slots: int, metadata: bytes, interface: tuple[bytes, int, int], ttl: int, send_buffer: int, "
            "receive_buffer: int, control: tuple[bytes, int, int] | None, destinations: list[tuple[bytes, int, int]] | None, "
            "names: list[str], keys: list[bytes], clock: ManualClock | None) -> WriterEnd"));
    m.def(
        "udp_reader",
        [](int fd, std::string path, const std::string &start, uint64_t position, double drop_after,
           const std::vector<nb::bytes> &keys, std::string control_host, nb::bytes metadata) -> std::shared_ptr<ReaderEnd> {
            return std::make_shared<UdpReaderEnd>(fd, std::move(path), parse_start(start, position), drop_ns(drop_after),
                                                  keys_of(keys), std::move(control_host), text_of(metadata));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("start"), nb::arg("position"), nb::arg("drop_after"), nb::arg("keys"),
        nb::arg("control_host"), nb::arg("metadata"));
}

// A recorder's view of a session. `time_ns`: of its next frame, if there is one that is no padding: padding has no time.
nb::dict stream_dict(const UdpReader::Stream &stream) {
    const LogGeometry &geometry = stream.reader->log().geometry();
    nb::dict about;
    about["number"] = stream.number;
    about["term_length"] = geometry.term_length;
    about["initial_term_id"] = geometry.initial_term_id;
    about["stream_id"] = geometry.stream;
    about["description"] = nb::bytes(stream.description.data(), stream.description.size());
    about["skipped"] = stream.skipped;
    about["time_ns"] = nb::none();
    if (stream.reader->readable()) {
        const FrameHeader *frame = stream.reader->log().frame(stream.reader->position());
        if (frame_type(frame->word0.relaxed()) == static_cast<uint16_t>(FrameType::data)) about["time_ns"] = frame->reserved;
    }
    return about;
}

void bind_taps(nb::module_ &m) {
    m.def(
        "udp_tap",
        [](int fd, std::string path, const std::string &start, uint64_t position, double drop_after,
           const std::vector<nb::bytes> &keys) -> std::shared_ptr<StreamEnd> {
            return std::make_shared<UdpTapEnd>(std::make_shared<UdpReader>(fd, std::move(path), parse_start(start, position),
                                                                           drop_ns(drop_after), keys_of(keys)));
        },
        nb::arg("fd"), nb::arg("path"), nb::arg("start"), nb::arg("position"), nb::arg("drop_after"), nb::arg("keys"));
    m.def(
        "udp_streams",
        [](StreamHandle &tap) {
            nb::list found;
            for (const UdpReader::Stream &stream : dynamic_cast<UdpTapEnd &>(tap.ready()).reader().streams())
                found.append(stream_dict(stream));
            return found;
        },
        nb::arg("tap"), "The sessions that a recorder's tap reads.");
    m.def(
        "udp_stream",
        [](StreamHandle &tap, uint64_t number) -> std::shared_ptr<StreamEnd> {
            return std::make_shared<UdpStreamEnd>(dynamic_cast<UdpTapEnd &>(tap.ready()).shared(), number);
        },
        nb::arg("tap"), nb::arg("number"), "The end of one session of a recorder's tap.");
    m.def(
        "udp_stream_end",
        [](StreamHandle &stream) {
            const auto *end = dynamic_cast<UdpStreamEnd *>(&stream.ready());
            return SessionEnd::name_of(end == nullptr ? SessionEnd::How::open : end->how_it_ended());
        },
        nb::arg("stream"),
        "How its session has ended, once all of it was read: closed, or lost if it fell silent before it closed; else open.");
}

} // namespace

void bind_udp(nb::module_ &m) {
    bind_endpoints(m);
    bind_ends(m);
    bind_taps(m);
    m.def(
        "udp_sessions",
        [](Subscription &subscription) {
            nb::list found;
            for (const UdpSession &session : reader_of(subscription).sessions()) found.append(dict_of(session));
            return found;
        },
        nb::arg("subscription"), "The sessions that a subscription reads.");
    m.def(
        "udp_reached",
        [](Subscription &subscription) {
            nb::list found;
            for (const SessionReaders::Reached &one : reader_of(subscription).reached())
                found.append(nb::make_tuple(one.session, one.initial_term_id, one.join, one.position, one.lost));
            return found;
        },
        nb::arg("subscription"), nb::sig("def udp_reached(subscription: Subscription) -> list[tuple[int, int, int, int, int]]"),
        "The images that a subscription reads or has read, oldest first: session, initial term id, where it was joined, how far "
        "it "
        "was read, bytes that were lost before that.");
    m.def(
        "udp_receiving", [](Subscription &subscription) { return dict_of(reader_of(subscription).counts()); },
        nb::arg("subscription"), "The endpoint's counters.");
    m.def(
        "udp_sending", [](Publication &publication) { return dict_of(writer_of(publication).counts()); }, nb::arg("publication"),
        "The publication's counters.");
    m.def(
        "udp_progress", [](Publication &publication) { return writer_of(publication).progress(); }, nb::arg("publication"),
        nb::sig("def udp_progress(publication: Publication) -> tuple[int, bool]"),
        "Up to which position receivers have read, and whether another receiver has taken the place of one: it lacks what that "
        "one "
        "had not read.");
    m.def(
        "udp_counts",
        [](nb::bytes file) {
            UdpCounts counts;
            if (file.size() < sizeof counts) throw Error(Code::corrupt, "a publication's counts are cut short");
            std::memcpy(&counts, file.data(), sizeof counts);
            return dict_of(counts);
        },
        nb::arg("file"), "A publication's counters, from the file that it shows them in.");
    m.def("udp_receivers", &receivers_of, nb::arg("file"), nb::sig("def udp_receivers(file: bytes) -> list[Any] | None"),
          "The receivers that a publication hears of, from the file that it shows them in. None: they change now.");
    m.def("udp_path_text", &path_text, nb::arg("mtu"), nb::arg("arrives"), nb::arg("where"),
          "That datagrams of the MTU do not arrive somewhere, and what to do.");
    m.attr("udp_counts_bytes") = counts_file_size;
    m.def(
        "udp_destination",
        [](Publication &publication, const nb::tuple &to, const std::string &name, bool add) {
            UdpWriter &writer = writer_of(publication);
            return add ? writer.add_destination(address_of(to), name) : writer.remove_destination(address_of(to), name);
        },
        nb::arg("publication"), nb::arg("to"), nb::arg("name"), nb::arg("add"),
        nb::sig("def udp_destination(publication: Publication, to: tuple[bytes, int, int], name: str, add: bool) -> bool"),
        "Adds a destination, or removes it. False: it is there already; it is not there.");
    m.def(
        "udp_told",
        [](nb::object handle) {
            if (nb::isinstance<Publication>(handle)) {
                UdpWriter &writer = writer_of(nb::cast<Publication &>(handle));
                return std::pair(writer.warning(), writer.last_error());
            }
            return std::pair(reader_of(nb::cast<Subscription &>(handle)).warning(), std::string());
        },
        nb::arg("handle"), nb::sig("def udp_told(handle: Publication | Subscription) -> tuple[str, str]"),
        "A warning about the socket's buffers, and a receiver's last error; empty if there is none.");
    m.def(
        "udp_finish",
        [](double seconds) {
            const int64_t ns = seconds_to_ns(seconds);
            bool done = false;
            without_interpreter([&] { done = Conductor::instance().finish(ns); });
            return done;
        },
        nb::arg("seconds"), "Waits until all closed publications are done, at most so long. Whether they are.");
    m.def(
        "udp_unsent", [] { return Conductor::instance().take_unsent(); },
        "The closed publications that gave up since the last call: the channel of each, and how many bytes were never sent.");
}

} // namespace penstock::bind
