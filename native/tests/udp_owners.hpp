// Promises of one owner of an endpoint's socket after another, to its readers. For udp_check.
#pragma once

#include "udp_folder.hpp"

namespace penstock::test {

// An endpoint with a reader, and two processes that may hold its socket.
struct Scene {
    const Place place;
    const OpenFile opened;
    const EndpointFile file;
    SessionReaders reader{{Start::From::earliest, 0}, 0};
    EndpointMembers one, two;
    ReceiverOptions options;
    wire::SetupFrame setup = wire::make<wire::SetupFrame>(wire::Type::setup); // of session 7

    explicit Scene(const Folder &folder)
        : place(folder), opened(open_file(place.path)), file(opened.fd(), place.path), one(opened.fd(), file),
          two(opened.fd(), file) {
        reader.join(opened.fd(), file, 1);
        one.attach(MemberRole::host, [] {});
        two.attach(MemberRole::host, [] {});
        options.stream = setup.stream = 1;
        setup.session = 7;
        setup.term_length = 64 * 1024;
        setup.mtu = 1408;
    }
    void end() {
        reader.leave();
        one.detach([] {});
        two.detach([] {});
    }
};
struct Nowhere { // takes what a receiver sends
    bool send(const Address &, const uint8_t *, size_t) { return true; }
};
inline uint64_t seven() { return 7; } // for a random number

// An owner that has not let go keeps its images. The next one goes on with them, and with the losses that were counted.
inline void a_new_owner_goes_on(const Folder &folder) {
    Scene scene(folder);
    auto &[place, opened, file, reader, one, two, options, setup] = scene;
    options.reliable = false;
    Nowhere way;
    wire::DataHeader second{}; // the frame before it is lost
    second.start = {header_length, 0, flags_whole, static_cast<uint16_t>(wire::Type::data)};
    second.term_offset = header_length;
    second.session = 7;
    second.stream = 1;
    int64_t now = 1'000'000'000;
    auto first = std::make_unique<ImageSet>(file, one, options, now);
    first->receiver().datagram(now, {}, wire::bytes_of(setup), sizeof setup);
    first->receiver().datagram(now, {}, wire::bytes_of(second), sizeof second);
    for (int i = 0; i < 2; ++i) first->receiver().tick(now += 1'000'000, way, seven);
    CHECK(first->publish([](bool) {}));
    const auto read = [&] {
        while (reader.peek() != nullptr) reader.consume();
        return reader.lost();
    };
    CHECK(read() == header_length); // the padding in its place tells every reader
    CHECK(file.entry(0).bytes_lost.relaxed() == header_length);
    const std::string told = wire::write_extension(wire::extension_description, 7, 1, "its codec");
    first->receiver().datagram(now, {}, reinterpret_cast<const uint8_t *>(told.data()), told.size());
    CHECK(first->publish([](bool) {}), "a subscription sleeps until it knows the codec, however many messages are there");
    CHECK(!first->publish([](bool) {}), "it is told once");
    ImageSet next(file, two, options, now);
    bool busy = false;
    try {
        next.adopt();
    } catch (const Error &error) {
        busy = error.code == Code::busy;
    }
    CHECK(busy && file.entry(0).number.relaxed() == 1);
    first->hand_over();
    first.reset();
    next.adopt();
    next.publish([](bool) {});
    CHECK(file.entry(0).bytes_lost.relaxed() == header_length);
    CHECK(read() == header_length && reader.position() == 2 * header_length);
    scene.end();
}

// A session falls silent, another process takes the socket over, and the sender goes on far ahead. A subscription that read the
// session before counts the missing bytes; one that comes later does not.
inline void a_silent_session_tells_its_readers_what_is_lost(const Folder &folder) {
    Scene scene(folder);
    auto &[place, opened, file, reader, one, two, options, setup] = scene;
    SessionReaders late({Start::From::earliest, 0}, 0);
    Nowhere way;
    wire::DataHeader data{};
    data.start = {header_length, 0, flags_whole, static_cast<uint16_t>(wire::Type::data)};
    data.session = 7;
    data.stream = 1;
    int64_t now = 1'000'000'000;
    uint64_t read = 0;
    const auto go_on = [&](ImageSet &images, int64_t until, bool reads = true) {
        for (; now < until; now += 100'000'000) {
            images.receiver().tick(now, way, seven);
            images.consume(now);
            images.publish([](bool) {});
            while (reads && reader.peek() != nullptr) reader.consume(), ++read;
        }
    };
    // Whether the last messages before the silence are read when the session is heard again.
    for (const bool reads : {true, false}) {
        uint64_t lost = 0;
        read = 0;
        {
            ImageSet first(file, one, options, now);
            first.adopt();
            first.receiver().datagram(now, {}, wire::bytes_of(setup), sizeof setup);
            first.receiver().datagram(now, {}, wire::bytes_of(data), sizeof data);
            go_on(first, now + 1'000'000'000, reads);
            lost = reader.lost();
            go_on(first, now + 15'000'000'000, reads);
            CHECK(first.receiver().images().size() == !reads);
            first.hand_over();
        }
        ImageSet next(file, two, options, now);
        next.adopt();
        if (reads) late.join(opened.fd(), file, 1);    // while nobody has the session in memory
        if (!reads) go_on(next, now + 15'000'000'000); // it can only be heard again when its image is read
        CHECK(read == 1 && next.receiver().images().empty(), "%lu read, %zu images", read, next.receiver().images().size());
        lost = reads ? lost : reader.lost();
        setup.active_term_id = data.term_id += 100;
        next.receiver().datagram(now, {}, wire::bytes_of(setup), sizeof setup);
        next.receiver().datagram(now, {}, wire::bytes_of(data), sizeof data);
        go_on(next, now + 1'000'000'000);
        CHECK(read == 2 && reader.lost() - lost == 100 * 64 * 1024 - header_length, "%lu bytes lost", reader.lost() - lost);
        const uint64_t told = one.slot(reader.mine()).subscriber.bytes_lost.relaxed();
        CHECK(told == reader.lost(), "%lu bytes shown, %lu lost", told, reader.lost());
        if (reads) {
            while (late.peek() != nullptr) late.consume();
            CHECK(late.lost() == 0);
            late.leave();
        }
        go_on(next, now + 15'000'000'000); // silent again, and read whole
        CHECK(next.receiver().images().empty());
        setup.active_term_id = data.term_id += 100;
    }
    scene.end();
}

// A takeover may fail at any image, and is tried again. The images before it stay.
inline void a_takeover_fails_half_way(const Folder &folder) {
    Scene scene(folder);
    auto &[place, opened, file, reader, one, two, options, setup] = scene;
    {
        ImageSet first(file, one, options, 1);
        for (setup.session = 7; setup.session < 9; ++setup.session)
            first.receiver().datagram(1, {}, wire::bytes_of(setup), sizeof setup);
        first.hand_over();
    }
    setup.session = 8;
    {
        const OpenFile second = open_file(file.image_file(2));
        ImageOwner still_held(second.fd(), file, 1, 2, setup);
        ImageSet next(file, two, options, 1);
        bool busy = false;
        try {
            next.adopt();
        } catch (const Error &error) {
            busy = error.code == Code::busy;
        }
        CHECK(busy && next.receiver().images().size() == 1);
        still_held.log().detach();
    }
    ImageSet last(file, two, options, 1);
    last.adopt();
    CHECK(last.receiver().images().size() == 2);
    scene.end();
}

} // namespace penstock::test
