// Sources that are asked to prove that they receive at their addresses before they get an image, and those that have. A flood of
// challenges takes no memory: docs/design/network_log.md.
#pragma once

#include "net/receive/session/image_state.hpp"
#include "net/receive/session/source_credit.hpp"
#include "net/wire/answer_queue.hpp"
#include "net/wire/rtt_frame.hpp"
#include "net/wire/shares.hpp"
#include "net/wire/source_proof.hpp"

namespace penstock {

// Makes room in a full table, whose entries have `from` and `at`. False: `from` has its share.
template <class Entry> bool give_way(std::vector<Entry> &table, int64_t now, const Address &from, int64_t idle_ns) {
    std::vector<Shareholder> holders;
    for (const Entry &one : table) holders.push_back({one.from, 1, true, one.at});
    const auto found = Shares::choose_one(now, holders, {from, 1, true, now}, table.size(), idle_ns);
    if (found) table.erase(table.begin() + static_cast<ptrdiff_t>(*found));
    return found.has_value();
}

class SourceChallenges {
  public:
    static constexpr size_t proved_max = 256;
    static constexpr int64_t proved_ns = 5'000'000'000; // a proof is good for so long

    bool has_proved(int64_t now, const Address &from) const {
        return std::any_of(proved_.begin(), proved_.end(),
                           [&](const Proved &one) { return one.from == from && now < one.until; });
    }
    // The challenge is sent in the next turn. False: it is there already, or the source has not sent enough.
    bool add(const Address &from, int32_t session, SourceCredit &credit) {
        const auto is_same = [&](const Challenge &one) { return one.from == from && one.session == session; };
        const auto &queue = queue_.items();
        if (std::any_of(queue.begin(), queue.end(), is_same) || !credit.spend(sizeof(wire::RttFrame))) return false;
        queue_.add({from, session});
        return true;
    }
    bool pending() const { return !queue_.empty(); }
    template <class Out, class Random> void send(int64_t now, int32_t stream, int64_t receiver, Out &out, Random &&random) {
        std::erase_if(proved_, [&](const Proved &one) { return now >= one.until; });
        if (queue_.empty()) return;
        if (!proof_.is_set()) proof_.set_secret(random(), random());
        for (const Challenge &one : queue_.items()) {
            auto frame = wire::make<wire::RttFrame>(wire::Type::rtt, wire::flag_reply);
            frame.session = one.session;
            frame.stream = stream;
            frame.echo = proof_.number(now, one.from, one.session);
            frame.receiver = receiver;
            if (has_unproved_room(out))
                out.send(one.from, wire::bytes_of(frame), sizeof frame); // else it is lost: SETUP comes again
        }
        queue_.clear();
    }
    // False: it answers no challenge, or its host has its share of proofs.
    bool on_answer(int64_t now, const Address &from, const wire::RttFrame &frame, int64_t receiver) {
        if ((frame.start.flags & wire::flag_reply) != 0 || frame.receiver != receiver ||
            !proof_.proves(now, from, frame.session, frame.echo))
            return false;
        std::erase_if(proved_, [&](const Proved &one) { return one.from == from; });
        if (proved_.size() == proved_max && !give_way(proved_, now, from, 0)) return false;
        proved_.push_back({from, now, now + proved_ns});
        return true;
    }

  private:
    struct Challenge {
        Address from;
        int32_t session;
    };
    struct Proved {
        Address from;
        int64_t at, until;
    };
    SourceProof proof_;
    AnswerQueue<Challenge> queue_;
    std::vector<Proved> proved_;
};

} // namespace penstock
