// One end of a channel, by its arguments: `ends WHAT URI COUNT HOW [OPTION...]`. It prints one line; an error goes to stderr, as
// its code and its text.
#include "drive.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <thread>

using namespace std::chrono_literals;
using penstock::Code;
using penstock::Error;

// With gaps, as a compiler makes them; the message has none.
struct Reading {
    int8_t unit;
    double value;
    std::array<float, 3> axes;
    char name[8];
    struct Inner {
        uint16_t a;
        int64_t b;
    } inner;
};
PENSTOCK_STRUCT(Reading::Inner, a, b);
PENSTOCK_STRUCT(Reading, unit, value, axes, name, inner);

struct Pose {
    int64_t number;
    double x, y;
    float heading;
};
PENSTOCK_STRUCT(Pose, number, x, y, heading);

// Of a frame's header, with a gap; and a point of a cloud, without.
struct Shot {
    float gain;
    uint8_t kind;
    uint16_t x;
};
PENSTOCK_STRUCT(Shot, gain, kind, x);
struct Point {
    float at[3];
    uint32_t echo;
};
PENSTOCK_STRUCT(Point, at, echo);

namespace {

std::map<std::string, std::string> options;
std::optional<int64_t> whole(const char *name) {
    const auto found = options.find(name);
    return found == options.end() ? std::nullopt : std::optional<int64_t>(std::atoll(found->second.c_str()));
}
std::string text(const char *name) { return options.count(name) != 0 ? options[name] : ""; }

penstock::PublicationOptions to_publish() {
    return {.capacity = whole("capacity"),
            .max_members = whole("max_members"),
            .term_length = whole("term_length"),
            .when_full = text("when_full").empty() ? "wait" : text("when_full"),
            .codec = text("codec")};
}
penstock::SubscriptionOptions to_subscribe() {
    penstock::SubscriptionOptions made{.conflate = whole("conflate").has_value(), .until_end = true};
    if (text("start") == "earliest") made.start = penstock::from_earliest;
    if (whole("last")) made.start = penstock::from_last(static_cast<uint64_t>(*whole("last")));
    if (whole("position")) made.start = penstock::from_position(static_cast<uint64_t>(*whole("position")));
    if (whole("drop_after_ms")) made.drop_after = *whole("drop_after_ms") * 1ms;
    made.manual_acknowledge = whole("manual").has_value();
    made.capacity = whole("capacity");
    made.max_members = whole("max_members");
    made.codec = text("codec");
    return made;
}

void send(const std::string &uri, int count, const std::string &how) {
    penstock::Publication<> publication(uri, to_publish());
    publication.wait_for_readers(1, 60s);
    const size_t length = static_cast<size_t>(whole("length").value_or(0));
    for (int i = 0; i < count; ++i) {
        std::string message = std::to_string(i);
        message.resize(std::max(length, message.size()), ' ');
        publication.send(message, 60s);
    }
    if (how == "claim" && whole("hang")) {
        auto claim = publication.claim(8, 60s);
        std::puts("claimed");
        std::fflush(stdout);
        std::this_thread::sleep_for(1h);
    }
    if (whole("hang")) {
        std::puts("sent");
        std::fflush(stdout);
        std::this_thread::sleep_for(1h);
    }
    std::printf("sent %d\n", count);
}

void recv(const std::string &uri, int count) {
    penstock::Subscription<> subscription(uri, to_subscribe());
    if (whole("ready")) {
        std::puts("ready");
        std::fflush(stdout);
    }
    std::vector<std::string> got;
    const auto add = [&](std::string_view message) { got.emplace_back(message.substr(0, message.find(' '))); };
    std::string end = "all";
    try {
        while (count == 0 || static_cast<int>(got.size()) < count) {
            const auto message = subscription.recv(60s);
            if (!message) throw Error(Code::timed_out, "no message");
            add(*message);
        }
    } catch (const Error &error) {
        if (error.code != Code::end_of_stream) throw;
        end = "end";
    }
    std::string numbers;
    for (const std::string &one : got) numbers += (numbers.empty() ? "" : ",") + one;
    std::printf("%s %s lost %lld redelivered %d\n", end.c_str(), numbers.c_str(),
                static_cast<long long>(subscription.lost_messages()),
                uri.starts_with("pipe:") && subscription.redelivered() ? 1 : 0);
    std::fflush(stdout);
    if (whole("hang")) std::this_thread::sleep_for(1h);
}

void send_reading(const std::string &uri, int count) {
    penstock::Publication<Reading> publication(uri, to_publish());
    publication.wait_for_readers(1, 60s);
    for (int i = 0; i < count; ++i) publication.send({static_cast<int8_t>(i), i / 2.0, {1, 2, 3}, "north", {7, -i}}, 60s);
}
void recv_reading(const std::string &uri) {
    penstock::Subscription<Reading> subscription(uri, to_subscribe());
    for (const Reading &one : subscription)
        std::printf("%d %.1f %.0f %s %d %lld;", one.unit, one.value, one.axes[2], one.name, one.inner.a,
                    static_cast<long long>(one.inner.b));
    std::puts("");
}

void meet(const std::string &uri, const std::string &name) {
    penstock::Member<> member(uri, {.name = name});
    member.wait_for_readers(2, 60s);
    member.send("from " + name, "greeting", 60s);
    const auto message = member.recv(60s);
    if (!message) throw Error(Code::timed_out, "no message");
    std::printf("%s %s %s\n", message->sender.c_str(), message->type.c_str(), message->body.c_str());
}

void send_frames(const std::string &uri, int count, const std::string &how) {
    penstock::FramePublication<uint16_t> camera(uri, {.shape = {4, 6}, .buffers = 3, .waits = true});
    camera.wait_for_readers(1, 60s);
    for (int i = 0; i < count; ++i) {
        auto frame = camera.claim(60s);
        std::fill(frame.pixels().begin(), frame.pixels().end(), static_cast<uint16_t>(i));
        frame.describe(100 + i, 5, 6, "{\"gain\":1.5}");
        frame.commit();
    }
    if (how == "claim") {
        auto frame = camera.claim(60s);
        std::fill_n(frame.pixels().begin(), 5, uint16_t{999});
        std::puts("claimed");
        std::fflush(stdout);
        std::this_thread::sleep_for(1h);
    }
    std::printf("sent %d\n", count);
}
// Frames of their own size: number i has i rows of three, each i.
void send_shapes(const std::string &uri, int count) {
    penstock::FramePublication<uint16_t> camera(uri, {.shape = {8, 3}, .varies = true});
    camera.wait_for_readers(1, 60s);
    for (int i = 0; i < count; ++i) {
        auto frame = camera.claim_shape({static_cast<uint32_t>(i % 9), 3}, 60s);
        for (uint16_t &pixel : frame.pixels()) pixel = static_cast<uint16_t>(i);
        frame.describe(i + 100, 0, 0, "{\"n\":1}");
        frame.commit();
    }
    std::printf("sent %d\n", count);
}
// One line for each thing that is refused: its code and its text.
template <class Work> void refused(Work &&work) {
    try {
        work();
        std::puts("taken");
    } catch (const Error &error) {
        std::printf("%d %s\n", static_cast<int>(error.code), error.what());
    }
}
void refuse() {
    using namespace penstock;
    for (const int64_t wrong : {0, 1000, -1})
        for (const char *kind : {"log:w", "ring:w", "pipe:w", "sync:w"})
            refused([&] { Publication<>(kind, {.capacity = wrong}); });
    refused([] { Subscription<>("log:w", {.capacity = 0}); });
    refused([] { Publication<>("log:w", {.stream_id = (int64_t{1} << 32) + 1}); });
    refused([] { Publication<>("log:a\nb"); });
    refused([] { Publication<>(std::string_view("log:a\0b", 7)); });
    refused([] { FramePublication<>("frames:w", {.shape = {4}, .buffers = 1}); });
    refused([] { Member<>("sync:w", {.drop_after = -1s}); });
    FramePublication<> camera("frames:cam", {.shape = {4, 4}});
    refused([] { FramePublication<>("frames:cam", {.shape = {4, 5}}); });
    refused([] { FrameSubscription<>("frames:cam", {.shape = {4}}); });
    refused([] { FramePublication<>("frames:cam", {.varies = true}); });
    refused([] { FrameSubscription<>("frames:cam", {.varies = true}); });
    for (const char *text : {"not JSON", "[1,2]", "3", "{\"a\":1e}", "{\"a\":1} x"})
        refused([&] { camera.claim(0s).describe(1, 0, 0, text); });
    refused([&] { camera.claim(0s).describe(1, 0, 0, "{\"a\":-1.5e3,\"b\":[0,null,\"c\"]}"); });
    Publication<> log("log:l");
    Subscription<> reader("log:l");
    refused([&] { reader.acknowledge(); });
    refused([&] { reader.requeue_on_close(); });
    refused([&] { reader.redelivered(); });
    Member<> member("sync:m");
    refused([&] { member.send("x", std::string(100'000, 'a'), 0s); });
    Publication<> pipe("pipe:p");
    {
        const auto claim = pipe.claim(4, 0s);
        refused([&] { pipe.claim(4); });
        refused([&] { pipe.send("x"); });
    }
    refused([&] { pipe.send("x", 0s); });
    for (const char *made : {"frames:cam", "log:l", "pipe:p"}) penstock::remove(made);
}
void send_too_large(const std::string &uri) { penstock::FramePublication<uint16_t>(uri).claim_shape({9, 3}, 0s); }
void recv_shapes(const std::string &uri, int count) {
    penstock::FrameSubscription<uint16_t> camera(uri, {.waits = true, .connect_timeout = 60s});
    for (int i = 0; i < count; ++i) {
        const auto frame = camera.recv(60s);
        if (!frame) throw Error(Code::timed_out, "no frame");
        uint32_t sum = 0;
        for (const uint16_t pixel : frame->pixels()) sum += pixel;
        std::printf("%u,%u,%u ", frame->shape()[0], frame->shape()[1], sum);
    }
    std::puts("");
}
// Frames of one of two types, with a header.
using Shots = penstock::OneOf<uint8_t, float>;
void send_shots(const std::string &uri, int count) {
    penstock::FramePublicationOptions given{.shape = {2, 3}, .varies = true, .buffers = 3, .waits = true};
    penstock::FramePublication<Shots, Shot> camera(uri, given);
    camera.wait_for_readers(1, 60s);
    const auto finish = [](auto claim, int number) {
        for (auto &pixel : claim.pixels()) pixel = static_cast<std::remove_reference_t<decltype(pixel)>>(number);
        claim.header() = {static_cast<float>(number) / 2, static_cast<uint8_t>(number), 7};
        claim.describe(number + 100, 0, 0, "{\"n\":" + std::to_string(number) + "}");
        claim.commit();
    };
    for (int i = 0; i < count; ++i)
        if (i % 2 == 0) finish(camera.claim<uint8_t>(60s), i);
        else finish(camera.claim_shape<float>({1, 3}, 60s), i);
    std::printf("sent %d\n", count);
}
void recv_shots(const std::string &uri, int count) {
    penstock::FrameSubscription<Shots, Shot> camera(uri, {.waits = true, .connect_timeout = 60s});
    for (int i = 0; i < count; ++i) {
        const auto frame = camera.recv(60s);
        if (!frame) throw Error(Code::timed_out, "no frame");
        const Shot shot = frame->header();
        const bool real = frame->holds<float>();
        const double first = real ? frame->pixels<float>()[0] : frame->pixels()[0];
        std::printf("%d %ux%u %.0f %.1f %d %d %s;", real ? 1 : 0, frame->shape()[0], frame->shape()[1], first, shot.gain,
                    shot.kind, shot.x, std::string(frame->fields()).c_str());
    }
    std::puts("");
}
// Clouds of points: number i has i of them.
void send_points(const std::string &uri, int count) {
    penstock::FramePublication<Point> lidar(uri, {.shape = {8}, .varies = true});
    lidar.wait_for_readers(1, 60s);
    for (int i = 0; i < count; ++i) {
        auto cloud = lidar.claim_shape({static_cast<uint32_t>(i)}, 60s);
        uint32_t echo = 0;
        const auto at = static_cast<float>(i);
        for (Point &point : cloud.pixels()) point = {{at, at, at}, echo++};
        cloud.commit();
    }
    std::printf("sent %d\n", count);
}
void recv_points(const std::string &uri, int count) {
    penstock::FrameSubscription<Point> lidar(uri, {.waits = true, .connect_timeout = 60s});
    for (int i = 0; i < count; ++i) {
        const auto cloud = lidar.recv(60s);
        if (!cloud) throw Error(Code::timed_out, "no frame");
        uint32_t sum = 0;
        for (const Point &point : cloud->pixels()) sum += point.at[2] == 3 ? point.echo : 1000;
        if (i == 0) std::printf("%u", cloud->shape()[0]);
        else std::printf(" %u:%u", cloud->shape()[0], sum);
    }
    std::puts("");
}
void recv_frames(const std::string &uri, int count) {
    penstock::FrameSubscription<uint16_t> camera(uri, {.waits = true, .connect_timeout = 60s});
    std::optional<penstock::FrameLease<uint16_t>> kept;
    int good = 0;
    for (int i = 0; i < count; ++i) {
        auto frame = camera.recv(60s);
        if (!frame) throw Error(Code::timed_out, "no frame");
        good += frame->pixels()[0] == i && frame->pixels().size() == 24;
        if (i == 0) kept.emplace(std::move(*frame));
    }
    std::printf("%d frames of %u x %u, the first still %d\n", good, camera.shape()[0], camera.shape()[1], kept->pixels()[5]);
}

} // namespace

int main(int argc, char **argv) {
    if (argc == 2 && argv[1] == std::string_view("drive")) return drive::run();
    if (argc < 5) return 2;
    const std::string what = argv[1], uri = argv[2], how = argv[4];
    const int count = std::atoi(argv[3]);
    for (int i = 5; i < argc; ++i) {
        const std::string option = argv[i];
        options[option.substr(0, option.find('='))] = option.substr(std::min(option.size(), option.find('=') + 1));
    }
    try {
        if (what == "send") send(uri, count, how);
        else if (what == "recv") recv(uri, count);
        else if (what == "send_reading") send_reading(uri, count);
        else if (what == "recv_reading") recv_reading(uri);
        else if (what == "recv_pose") penstock::Subscription<Pose>(uri, to_subscribe()).recv(60s);
        else if (what == "send_pose") penstock::Publication<Pose>(uri, to_publish()).send({1, 2, 3, 4}, 0s);
        else if (what == "meet") meet(uri, how);
        else if (what == "send_frames") send_frames(uri, count, how);
        else if (what == "recv_frames") recv_frames(uri, count);
        else if (what == "send_shapes") send_shapes(uri, count);
        else if (what == "recv_shapes") recv_shapes(uri, count);
        else if (what == "send_shots") send_shots(uri, count);
        else if (what == "recv_shots") recv_shots(uri, count);
        else if (what == "send_points") send_points(uri, count);
        else if (what == "recv_points") recv_points(uri, count);
        else if (what == "send_too_large") send_too_large(uri);
        else if (what == "refuse") refuse();
        else if (what == "remove") penstock::remove(uri);
        else return 2;
    } catch (const Error &error) {
        std::fprintf(stderr, "%d %s\n", static_cast<int>(error.code), error.what());
        return 1;
    }
    return 0;
}
