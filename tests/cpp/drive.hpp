// Ends of channels that a test drives: each line of stdin asks one of them, `NUMBER VERB ARGUMENT...`, and a line of stdout
// answers,
// `= VALUE...` or `! CODE TEXT`. Bytes are hexadecimal digits, timeouts nanoseconds.
#pragma once

#include <penstock.hpp>

#include <charconv>
#include <cstdio>
#include <functional>
#include <iostream>
#include <map>
#include <sstream>

namespace drive {

using penstock::Code;
using penstock::Error;
using Arguments = std::vector<std::string>;
using Answer = std::string;
using Verbs = std::map<std::string, std::function<Answer(const Arguments &)>, std::less<>>;

inline std::string hex(std::span<const std::byte> bytes) {
    std::string made = "x"; // so that no bytes are a word, too
    for (const std::byte byte : bytes)
        for (const int half : {std::to_integer<int>(byte >> 4), std::to_integer<int>(byte & std::byte{15})})
            made += "0123456789abcdef"[half];
    return made;
}
inline std::string hex(const std::string &bytes) { return hex(std::as_bytes(std::span(bytes))); }
inline std::string unhex(std::string_view digits) {
    std::string made;
    for (size_t at = 1; at + 1 < digits.size(); at += 2) {
        unsigned byte = 0;
        std::from_chars(digits.data() + at, digits.data() + at + 2, byte, 16);
        made += static_cast<char>(byte);
    }
    return made;
}
inline std::span<const uint8_t> pixels(const std::string &bytes) {
    return {reinterpret_cast<const uint8_t *>(bytes.data()), bytes.size()};
}
inline std::chrono::nanoseconds limit(const std::string &word) { return std::chrono::nanoseconds(std::stoll(word)); }
inline Answer maybe(const std::optional<int64_t> &position) { return position ? std::to_string(*position) : "none"; }

struct Options {
    explicit Options(const Arguments &words) {
        for (const std::string &word : words) given[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    }
    std::optional<int64_t> whole(const char *name) const {
        const auto found = given.find(name);
        return found == given.end() ? std::nullopt : std::optional<int64_t>(std::stoll(found->second));
    }
    penstock::Start start() const {
        if (whole("last")) return penstock::from_last(static_cast<uint64_t>(*whole("last")));
        if (whole("position")) return penstock::from_position(static_cast<uint64_t>(*whole("position")));
        return given.count("earliest") != 0 ? penstock::from_earliest : penstock::from_newest;
    }
    std::map<std::string, std::string, std::less<>> given;
};

template <class Publication> void add_writing(Verbs &verbs, std::shared_ptr<Publication> pub) {
    verbs["wait_for_readers"] = [=](const Arguments &a) {
        pub->wait_for_readers(static_cast<uint32_t>(std::stoul(a[0])), limit(a[1]));
        return Answer();
    };
    verbs["readers"] = [=](const Arguments &) { return std::to_string(pub->readers()); };
    verbs["max_payload"] = [=](const Arguments &) { return std::to_string(pub->max_payload()); };
}
// A channel's status as the fields of Python's, a word each; one word per member.
inline Answer text_of(const penstock::ChannelStatus &status) {
    std::ostringstream text;
    const auto add = [&](auto... values) { ((text << values << ','), ...); };
    const auto maybe_none = [&](const std::optional<uint64_t> &value) { value ? text << *value << ',' : text << "None,"; };
    const penstock::ChannelTotals &t = status.totals;
    add(status.open ? "open" : "ready", status.size, status.created_ns, status.capacity, status.max_members, status.position,
        status.lag(), status.writers(), status.readers());
    text << ' ';
    add(t.messages_sent, t.bytes_sent, t.messages_received, t.bytes_received, t.back_pressure, t.bytes_lost);
    maybe_none(t.messages_lost);
    add(t.repaired, t.dropped, t.reaped, t.restarts, t.conflated);
    text << ' ';
    add(status.latency.messages(), static_cast<int64_t>(status.latency.quantile_ns(0.99)));
    for (const penstock::MemberStatus &m : status.members) {
        text << ' ';
        add(m.slot, m.role, m.dropped, m.pid, m.session, m.joined_ns);
        maybe_none(m.position);
        add(m.messages, m.bytes, m.back_pressure, m.bytes_lost);
        maybe_none(m.messages_lost);
        add(m.name.value_or("None"));
        maybe_none(m.lag);
    }
    return text.str();
}
template <class Handle> void add_common(Verbs &verbs, std::shared_ptr<Handle> handle) {
    verbs["position"] = [=](const Arguments &) { return std::to_string(handle->position()); };
    verbs["lag"] = [=](const Arguments &) { return std::to_string(handle->lag()); };
    verbs["statistics"] = [=](const Arguments &) { return text_of(handle->statistics()); };
    verbs["channel"] = [=](const Arguments &) { return handle->channel(); };
    verbs["closed"] = [=](const Arguments &) { return std::to_string(handle->closed()); };
    verbs["close"] = [=](const Arguments &) { return handle->close(), Answer(); };
}
// `Claim`: what the publication's claim gives.
template <class Claim, class Publication, class Make>
void add_claims(Verbs &verbs, std::shared_ptr<Publication> pub, Make &&make) {
    auto held = std::make_shared<std::optional<Claim>>();
    verbs["claim"] = [=](const Arguments &a) {
        held->emplace(make(*pub, static_cast<size_t>(std::stoull(a[0])), limit(a[1])));
        return Answer();
    };
    verbs["commit"] = [=](const Arguments &a) {
        const std::string body = unhex(a[0]);
        std::copy(body.begin(), body.end(), reinterpret_cast<char *>((*held)->bytes().data()));
        const int64_t position = (*held)->commit();
        held->reset();
        return std::to_string(position);
    };
    verbs["abort"] = [=](const Arguments &) { return (*held)->abort(), held->reset(), Answer(); };
    verbs["drop_claim"] = [=](const Arguments &) { return held->reset(), Answer(); };
}

inline Verbs publish(const std::string &uri, const Options &options) {
    Verbs verbs;
    if (uri.starts_with("frames:")) {
        using Frames = penstock::FramePublication<>;
        penstock::FramePublicationOptions given{.buffers = options.whole("buffers"), .waits = options.whole("waits").has_value()};
        if (options.whole("shape")) given.shape = {static_cast<uint32_t>(*options.whole("shape"))};
        auto pub = std::make_shared<Frames>(uri, given);
        verbs["send"] = [=](const Arguments &a) { return std::to_string(pub->send(pixels(unhex(a[0])), limit(a[1]))); };
        verbs["offer"] = [=](const Arguments &a) { return maybe(pub->offer(pixels(unhex(a[0])))); };
        verbs["offer_many"] = [=](const Arguments &a) {
            size_t done = 0;
            while (done < a.size() && pub->offer(pixels(unhex(a[done])))) ++done;
            return std::to_string(done);
        };
        add_claims<penstock::FrameClaim<uint8_t>>(
            verbs, pub, [](Frames &frames, size_t, std::chrono::nanoseconds timeout) { return frames.claim(timeout); });
        add_writing(verbs, pub);
        add_common(verbs, pub);
        return verbs;
    }
    auto pub = std::make_shared<penstock::Publication<>>(uri, penstock::PublicationOptions{
                                                                  .capacity = options.whole("capacity"),
                                                                  .max_members = options.whole("max_members"),
                                                                  .max_pipes = options.whole("max_pipes"),
                                                              });
    verbs["send"] = [=](const Arguments &a) { return std::to_string(pub->send(unhex(a[0]), limit(a[1]))); };
    verbs["offer"] = [=](const Arguments &a) { return maybe(pub->offer(unhex(a[0]))); };
    verbs["offer_many"] = [=](const Arguments &a) {
        std::vector<std::string> all;
        for (const std::string &one : a) all.push_back(unhex(one));
        return std::to_string(pub->offer_many(all));
    };
    add_claims<penstock::Claim>(
        verbs, pub, [](penstock::Publication<> &to, size_t length, std::chrono::nanoseconds t) { return to.claim(length, t); });
    add_writing(verbs, pub);
    add_common(verbs, pub);
    return verbs;
}

template <class Subscription> void add_reading(Verbs &verbs, std::shared_ptr<Subscription> sub) {
    verbs["wait"] = [=](const Arguments &a) { return std::to_string(sub->wait(limit(a[0]))); };
    verbs["lost"] = [=](const Arguments &) { return std::to_string(sub->lost()); };
    verbs["lost_messages"] = [=](const Arguments &) { return std::to_string(sub->lost_messages()); };
    verbs["conflated"] = [=](const Arguments &) { return std::to_string(sub->conflated()); };
    verbs["last"] = [=](const Arguments &) {
        const penstock::Received last = sub->last();
        return std::to_string(last.position) + " " + std::to_string(last.time_ns) + " " + std::to_string(last.session);
    };
    add_common(verbs, sub);
}

inline Verbs subscribe(const std::string &uri, const Options &options) {
    Verbs verbs;
    const bool until_end = options.given.count("until_end") != 0;
    if (uri.starts_with("frames:")) {
        using Lease = penstock::FrameSubscription<>::Lease;
        penstock::FrameSubscriptionOptions given{
            .waits = options.given.count("waits") != 0, .until_end = until_end, .start = options.start()};
        if (options.whole("conflate")) given.conflate = *options.whole("conflate") != 0;
        auto sub = std::make_shared<penstock::FrameSubscription<>>(uri, given);
        auto held = std::make_shared<std::optional<Lease>>();
        const auto text = [](const std::optional<Lease> &frame) {
            return frame ? hex(std::as_bytes(frame->pixels())) : Answer("none");
        };
        verbs["recv"] = [=](const Arguments &a) { return text(sub->recv(limit(a[0]))); };
        verbs["borrow"] = [=](const Arguments &a) {
            held->reset();
            if (auto found = sub->recv(limit(a[0]))) held->emplace(std::move(*found));
            return text(*held);
        };
        verbs["held"] = [=](const Arguments &) { return text(*held); };
        verbs["give_back"] = [=](const Arguments &) { return held->reset(), Answer(); };
        add_reading(verbs, sub);
        return verbs;
    }
    penstock::SubscriptionOptions given{.start = options.start(), .until_end = until_end};
    given.conflate = options.given.count("conflate") != 0 && *options.whole("conflate") != 0;
    given.capacity = options.whole("capacity");
    auto sub = std::make_shared<penstock::Subscription<>>(uri, given);
    auto held = std::make_shared<std::optional<penstock::Borrow>>();
    verbs["recv"] = [=](const Arguments &a) {
        const auto message = sub->recv(limit(a[0]));
        return message ? hex(*message) : Answer("none");
    };
    verbs["poll"] = [=](const Arguments &a) {
        Answer made;
        for (const std::string &one : sub->poll(static_cast<size_t>(std::stoull(a[0])))) made += hex(one) + " ";
        return made;
    };
    const auto text = [=] { return *held ? hex((*held)->bytes()) : Answer("none"); };
    verbs["borrow"] = [=](const Arguments &a) {
        held->reset();
        if (auto found = sub->borrow(limit(a[0]))) held->emplace(std::move(*found));
        return text();
    };
    verbs["held"] = [=](const Arguments &) { return text(); };
    verbs["give_back"] = [=](const Arguments &) { return held->reset(), Answer(); };
    add_reading(verbs, sub);
    return verbs;
}

inline int run() {
    std::map<std::string, Verbs> handles;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string number, verb;
        words >> number >> verb;
        const Arguments given{std::istream_iterator<std::string>(words), {}};
        try {
            Answer answer;
            if (verb == "folder") setenv("PENSTOCK_DIR", given[0].c_str(), 1);
            else if (verb == "publish") handles[number] = publish(given[0], Options({given.begin() + 1, given.end()}));
            else if (verb == "subscribe") handles[number] = subscribe(given[0], Options({given.begin() + 1, given.end()}));
            else if (verb == "forget") handles.erase(number);
            else answer = handles.at(number).at(verb)(given);
            std::printf("= %s\n", answer.c_str());
        } catch (const Error &error) {
            std::printf("! %d %s\n", static_cast<int>(error.code), error.what());
        }
        std::fflush(stdout);
    }
    return 0;
}

} // namespace drive
