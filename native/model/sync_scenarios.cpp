// What a sync queue adds to the term log: names, members that write before they read, members that nobody may wait for.
#include "stage.hpp"

namespace penstock::model {
namespace {

// A slot goes from hand to hand: who looks at its name sees a whole one or none.
void names_change_hands() {
    Stage stage(256, 2, true);
    const std::string first(name_max, 'a'), second(name_max, 'b');
    LogReader &one = Stage::reader(0, {}, 0, first);
    LogReader &watcher = Stage::reader(1);
    Slot::Identity &slot = one.log().me().identity;
    World::thread([&one, second] {
        one.log().detach();
        new LogReader(Stage::open(), Start{}, 0, second);
    });
    World::thread([&watcher, &slot, first, second] {
        (void)watcher;
        for (int look = 0; look < 2; ++look) {
            const std::string name = read_name(slot);
            EXPECT(name.empty() || name == first || name == second);
        }
    });
    World::finally([&slot, second] { EXPECT(read_name(slot) == second); });
}

// Two members write more than there is room for before either reads. Who finds no room takes what it has not read into its own
// memory, and shows that. Nobody waits for ever, and both see one order.
void all_write_before_they_read() {
    Stage stage(128, 4);
    auto *orders = new std::vector<uint32_t>[2];
    LogReader *readers[2] = {&Stage::reader(0), &Stage::reader(1)};
    LogWriter *writers[2] = {&Stage::writer(0), &Stage::writer(1)};
    for (uint32_t me = 0; me < 2; ++me)
        World::thread([me, orders, &reader = *readers[me], &writer = *writers[me]] {
            auto spill = [&] {
                while (const Message *message = reader.look()) {
                    Word word;
                    EXPECT(message->length == sizeof word);
                    penstock::read(message->data, message->length);
                    std::memcpy(&word, message->data, sizeof word);
                    orders[me].push_back(word.writer << 8 | word.number);
                    reader.take();
                }
            };
            for (uint32_t number = 0; number < 2;) {
                if (offer(writer, me, number)) {
                    ++number;
                    continue;
                }
                const size_t before = orders[me].size();
                spill();
                if (orders[me].size() == before) spin_pause();
            }
            while (orders[me].size() < 4) {
                const size_t before = orders[me].size();
                spill();
                if (orders[me].size() == before) spin_pause();
            }
        });
    World::finally([orders] { EXPECT(orders[0] == orders[1]); });
}

// A member that does not let writers wait is told by name, and only while it is in the way.
void nobody_may_wait_for_me() {
    Stage stage(128, 3);
    LogReader &strict = Stage::reader(1, {}, refuses_to_wait, "strict");
    LogWriter &writer = Stage::writer(0);
    World::thread([&] {
        uint32_t sent = 0;
        while (offer(writer, 0, sent)) ++sent;
        std::string who;
        EXPECT(writer.log().refused(sizeof(Word) + header_length, who) && who == "strict");
        Seen seen;
        read_count(strict, seen, sent);
        EXPECT(strict.look() == nullptr); // and so it has shown where it is
        EXPECT(!writer.log().refused(sizeof(Word) + header_length, who));
        EXPECT(offer(writer, 0, sent));
    });
}

} // namespace

const std::vector<Scenario> &sync_scenarios() {
    static const std::vector<Scenario> all = {
        {"sync_names", "a name is read whole while its slot changes hands", names_change_hands},
        {"sync_all_write", "members write before they read", all_write_before_they_read, true},
        {"sync_refused", "a member that nobody may wait for", nobody_may_wait_for_me},
    };
    return all;
}

} // namespace penstock::model
