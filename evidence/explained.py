"""Why a weaker order is still right, or is judged by another suite: what survives the suite `mutants` must stand here.

Each entry: a function of the core, a text that fits it once (`evidence/anchors.py`), the half that may go (`*`: any), the reason.
An operation of which any half may go has no partner, and its comment says so: `SYNC -: reason`. `tests/tidy/test_orders.py` compares the two.
"""

from __future__ import annotations

LOCKED = "looked at under the lock, which orders it (SYNC 6)"
KERNEL = "the kernel's lock on the slot's byte has just ordered its last owner before us"
NO_DATA = "the event word carries no data; the fences on both sides order the looks (SYNC 7)"
SWAP_FOLLOWS = "only an exclusive publication looks at the tail, and it reads its own stores"
SWAP_RELEASES = (
    "the swap of the tail that follows releases it, and no claim record is looked at before the tail shows its claim"
)
NOTHING_AFTER = "nothing is read after it"
TAKEN = "only its value counts; the bytes are ordered by SYNC 18 and 19"
CHUNKS = "chunks are plain memory of the process: ThreadSanitizer's stress looks at them"
NAMED = "a file has its name only when it is complete; the suite `kill` steps through `create`"
SEEN = "for ThreadSanitizer, which does not see that the kernel's lock orders a slot's owners"
LOOKS = "only asks whether a frame is there; the reader that takes it acquires it"
PEOPLE = "for a count that people look at: no model looks; native/tests/members_crash.cpp does"
ELSEWHERE = (CHUNKS, NAMED, PEOPLE)  # needed, and judged by another suite
PREDECESSOR = (
    "the fence as it joins (SYNC 10) has released all that its predecessor did, which the kernel's lock ordered"
)
# fmt: off
EXPLAINED: list[tuple[str, str, str, str]] = [
    ("event_announce", "event.set_bits", "*", NO_DATA),
    ("event_notify_fenced", "event.cas", "*", NO_DATA),
    ("acquire_robust_lock", "!lives(holder) && lock.cas", "*", KERNEL),
    ("count_death", "release_fence", "*", PEOPLE),
    ("deaths_of", "acquire_fence", "*", PEOPLE),
    ("find_header", "magic.acquire", "*", NAMED),
    ("event_interrupt", "event.add", "*", NO_DATA),
    # ---- the log ----
    ("Participants::take_any_slot", "generation.acquire", "*", KERNEL),
    ("LogRepair::pad_hole", "word0.cas", "release",
     "a reader takes the first word of padding alone; a recorder copies its header too, and no scenario has both"),
    ("LogRepair::undo_claims", "where.acquire", "*", KERNEL),
    ("LogRepair::undo_claims", "word0.acquire", "*", KERNEL),
    ("LogRepair::undo_claims", "where.release", "*", LOCKED),
    ("LogMembers::clear_slot", "role.release", "*", LOCKED),
    ("LogMembers::clear_slot", "state.release", "*", LOCKED),
    ("LogMembers::attach", "role.release", "*", LOCKED),
    ("LogMembers::attach", "state.release", "*", LOCKED),
    ("LogMembers::is_active", "state.acquire", "*", LOCKED),
    ("LogMembers::is_active", "role.acquire", "*", LOCKED),
    ("LogMembers::reap", "state.acquire", "*", LOCKED),
    ("LastValues::note", "pending.release", "*", LOCKED),
    ("LastValues::keep", "pending.release", "*", LOCKED),
    ("LastValues::keep", "word0.acquire", "*", LOCKED),
    ("LogRoom::drop_slow", "position.acquire", "*", "whom to let go is only guessed from it; position_limit() reads it again"),
    ("LogRoom::drop_slow", "state.release", "*", "a full fence follows before anything is cleaned (SYNC 8)"),
    ("LogRoom::drop_slow", "full_fence", "fence", "the release fence in make_room() follows before anything is cleaned (SYNC 43)"),
    ("LogMembers::attach", "sessions.value.add", "*", "under the lock; only its value counts"),
    ("LogMembers::crash_for_test", "departed.release", "*", SEEN),
    ("LogMembers::clear_slot", "departed.acquire", "*", SEEN),
    ("LogMembers::subscriptions", "position.acquire", "*", "for a count; nothing is cleaned by it"),
    ("TermLog::may_have_ended", "tail.value.acquire", "*", "a guess; the reader that it wakes decides under the lock"),
    ("LogMembers::refused", "position.acquire", "*", "only says who refuses; nothing is cleaned by it"),
    ("LogRepair::pad_hole", "word0.cas", "acquire", NOTHING_AFTER),
    ("LogRepair::pad_hole", "word0.cas", "failure", NOTHING_AFTER),
    ("LogRepair::unblock", "frame_length(at->word0.acquire())", "*",
        "only asks whether a frame is there; who reads it acquires it"),
    ("LogRepair::unblock", "word0 = at->word0.acquire()", "*",
        "the acquires of the claim records before it make it see the commit; nothing is read after it"),
    ("LogRepair::unblock", "word0.acquire() == 0", "*", "only compared with zero, up to the next recorded claim"),
    ("LogReader::readable", "word0.acquire", "*", LOOKS),
    ("LogReader::seek", "position.release", "*", LOCKED),
    ("LogReader::check_not_dropped", "position.release", "*", LOCKED),
    ("LogReader::check_not_dropped", "state.release", "*", LOCKED),
    ("LogReader::check_not_dropped", "state.acquire", "*", "the fence before it orders what was read; the value decides"),
    ("LogWriter::claim_tail", "where.release(claiming); at = exclusive_ ? tail.acquire()", "*",
        SWAP_RELEASES + "; " + SWAP_FOLLOWS),
    ("LogWriter::claim_tail", "where.release(claiming); at = end", "*", SWAP_RELEASES),
    ("LogWriter::claim_tail", "where.release(claim_idle)", "*", "it says only that nothing is claimed"),
    ("LogWriter::claim_tail", "tail.cas", "acquire",
        "a claimant reads nothing of the one before it; the limit has an acquire of its own"),
    ("LogWriter::claim_tail", "tail.cas", "failure", "the value is only tried again"),
    ("LogWriter::pad_term", "where.release(at | claim_taken)", "*",
        "the swap before it released the claim; padding has nothing else to show"),
    ("LogRepair::pad_hole", "release_fence", "fence",
     "a look takes a pad's header for an old one only where a claim has died at its place and its limit is two steps old: no search came to that"),
    ("LogLook::take", "word0.acquire", "acquire", "the fence in kept() follows before anything of the frame is believed (SYNC 43)"),
    # ---- the network log ----
    ("Image::make_clean", "full_fence", "*", "a process that dies behind it has made the stores before it, whatever others see"),
    ("NetworkPublication::NetworkPublication", "position.release", "*", LOCKED),
    ("Image::pad", "word0.release", "release", "the full fence behind cleaning (Image::make_clean) releases the clean memory too"),
    ("format_log", "magic.release", "*", NAMED),
    ("Announcement::announce", "word_.exchange(me)", "release", "the finder reads nothing of the sleeper's but the word"),
    ("Announcement::announce", "word_.exchange(me)", "failure", "it is tried again: only the swap that succeeds counts"),
    ("Announcement::claim", "word_.add(0)", "acquire", "the finder reads nothing of the sleeper's but the word"),
    ("Announcement::announce", "word_.exchange(several)", "*", "the first exchange has ordered the look (SYNC 36)"),
    ("Announcement::claim", "word_.exchange(nobody)", "*", "only its value counts: of several finders one wakes"),
    ("WakeRequest::make", "pending_.exchange(1)", "*", "only its value counts; the fence before it orders the work (SYNC 39)"),
    ("SocketSleepers::enter", "asleep_.add(1)", "*", "a conductor that misses it serves the socket once more"),
    ("SocketSleepers::leave", "asleep_.add(UINT32_MAX)", "*", "the swap that follows releases it (SYNC 40)"),
    ("SocketSleepers::relied_on", "relied_.exchange(0)", "acquire", "the thread reads nothing of the conductor's but the word"),
    ("SocketSleepers::relied_on", "relied_.exchange(0)", "failure", "it is tried again: only the swap that succeeds counts"),
    ("SocketSleepers::rely", "relied_.exchange(1)", "release", "the thread reads nothing of the conductor's but the word"),
    ("SocketSleepers::rely", "relied_.exchange(1)", "failure", "it is tried again: only the swap that succeeds counts"),
    ("Endpoint::start_agent", "has_agent_.exchange(true)", "*", "only its value counts: one thread adds the endpoint"),
    # ---- the ring and the frame pool ----
    ("RingReader::find_last", "look_at(ring_->control().writer.newest.acquire());", "*",
     "looks at frames before the end only, which find_end has acquired; one that was overwritten since is not intact"),
    ("RingLook::take", "word0.acquire", "acquire", "the fence in kept() follows before anything of the frame is believed (SYNC 10)"),
    ("RingLook::end", "write.acquire", "acquire", "the fence in kept() follows, in begin(), before the first frame is read (SYNC 10)"),
    ("Ring::attach_writer", "state.release(1)", "*",
        "only `inspect` reads it; the kernel's lock says whether a publication lives"),
    ("Ring::clear_slot", "state.acquire() != 0) count_death", "*", KERNEL),
    ("Ring::clear_slot", "state.release(0)", "*", KERNEL),
    ("Ring::for_each_reader", "visit(s.reader.position.acquire()); } else if", "*", "the caller's own store"),
    ("Ring::detach", "me().identity.state.release(0)", "*", KERNEL),
    ("Ring::attach_publication", "me().identity.state.release(0)", "*", KERNEL),
    ("RingWriter::go_on", "newest.release", "*", PREDECESSOR),
    ("RingWriter::go_on", "write.release", "*", PREDECESSOR),
    ("RingWriter::go_on", "word0.acquire", "*", KERNEL),
    ("FramePool::take_over", "word.cas", "*",
        "only its value counts; the fences of a lease and of a recycling order it (SYNC 15)"),
    # ---- pipes, and what is between threads ----
    ("PeerTable::publish_change", "value.add(1)", "*", "only a hint: who sees it reads the table under its lock"),
    ("PipeWriter::PipeWriter", "acked.acquire", "*",
        "a writer is made as its pipe is laid: what it finds there was ordered by the table's lock (SYNC 6)"),
    ("PipeWriter::lag", "acked.acquire", "*", "a number for people; nothing is overwritten by it"),
    ("PipeWriter::drop_oldest", "read.cas", "*", TAKEN),
    ("PipeReader::claim", "read.cas", "*", TAKEN),
    ("Bridge::kick", "control_.add", "*", NO_DATA),
    ("YPipe::pointers", "c_.acquire", "*", "one thread is at both ends when a test calls it"),
    ("YPipe::flush", "c_.cas", "acquire", "the writer reads nothing of the reader's; chunks come by SYNC 21"),
    ("YPipe::flush", "c_.cas", "failure", "the value is not looked at: it can only be null"),
    ("YPipe::check_read", "c_.cas", "acquire", "when it succeeds there is nothing to read"),
    ("YPipe::check_read", "c_.cas", "release", "the reader gives the writer nothing; chunks go by SYNC 21"),
    ("YQueue::push", "spare_.exchange", "*", CHUNKS),
    ("YQueue::pop", "spare_.exchange", "*", CHUNKS),
]
# fmt: on
